"""The log on real media: memory (the reference), SQLite and PostgreSQL, all held to one conformance suite."""
