"""Holdfast beside LangGraph, DBOS and bare SQL, measured in turns on the same disk: `make bench-peers`."""
