"""The world outside: clock, ids and the facts of this process."""
