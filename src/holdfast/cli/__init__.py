"""The command line: one file per verb, each parses, calls, renders and returns. A verb is loaded only when it is used."""

from holdfast.cli.main import main

__all__ = ["main"]
