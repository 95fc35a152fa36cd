"""Runs a spec with coding agents, batch by batch, as an ordinary program on a durable run: its steps and effects are the log."""
