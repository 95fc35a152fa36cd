"""Tests, in folders that mirror src/holdfast."""
