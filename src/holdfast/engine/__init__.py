"""Performs what the core decides: intent on disk, then the act, then the outcome on disk."""
