"""Tests of the files of specs."""
