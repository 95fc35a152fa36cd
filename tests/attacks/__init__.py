"""Attacks on everything that reads what others wrote: fuzzed bytes, planted secrets, jumping clocks, and the checklist."""
