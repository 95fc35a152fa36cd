"""Finds code that nothing uses: vulture, less what only looks unused. Refuses nothing else; exits 1 when it found some.

Left out are the fields of records (codecs and readers reach them by name) and the bodies of Protocols (promises, not code).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from vulture import Vulture

DECORATORS = [
    "@*.command*",
    "@*.group*",
    "@pytest.fixture*",
    "@fixture*",
    "@overload",
    "@rule*",
    "@invariant*",
    "@initialize*",
]
NAMES = [
    *("test_*", "Test*", "pytest_*", "pytestmark", "make_store", "visit_*", "x[A-Z]*", "f_trace*", "unraisablehook"),
    *(
        "__getattr__",
        "exitstatus",
        "dst",
        "tzname",
        "arg",
        "signum",
        "list_commands",
        "format_commands",
        "parameter",
        "log_errors",
        "max_mem",
        "dont_write_bytecode",
    ),
]


def main(paths: list[str]) -> int:
    vulture = Vulture(ignore_names=NAMES, ignore_decorators=DECORATORS)
    vulture.scavenge(paths)
    found = [item for item in vulture.get_unused_code() if item.first_lineno not in excused(Path(item.filename))]
    for item in found:
        print(f"{item.filename}:{item.first_lineno}: unused {item.typ} {item.name!r}")
    return 1 if found else 0


@cache
def excused(path: Path) -> frozenset[int]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return frozenset(line for node in classes for line in excused_lines(node))


def excused_lines(node: ast.ClassDef) -> Iterator[int]:
    if any("Protocol" in ast.unparse(base) for base in node.bases):
        yield from range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
    yield from (item.lineno for item in node.body if isinstance(item, ast.AnnAssign))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
