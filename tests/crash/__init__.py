"""Kill everywhere: the crash laboratory driven over the real stores."""
