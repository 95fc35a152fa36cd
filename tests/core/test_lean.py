"""msgspec loads without `typing_extensions`, unless that is there already or another thread might miss it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# What measures coverage has loaded some of them before the first line.
FRESH = "import sys; [sys.modules.pop(name, None) for name in ('platform', 'textwrap', 'typing_extensions', 'uuid')]\n"
ALONE = "import holdfast.core.lean"
LOADED = "import typing_extensions, holdfast.core.lean"
MSGSPEC_FIRST = "import msgspec, holdfast.core.lean"
THREADED = """
import threading
stay = threading.Event()
threading.Thread(target=stay.wait).start()
try:
    import holdfast.core.lean
finally:
    stay.set()
"""
TELL = """
import sys, msgspec
assert msgspec.json.decode(b"[1]") == [1]
print(sys.modules.get("typing_extensions", "absent") == "absent")
import typing_extensions
assert typing_extensions.TypedDict
"""


def hidden(first: str) -> bool:
    script = FRESH + first + "\n" + TELL
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip() == "True"


def test_msgspec_loads_alone_and_what_was_hidden_can_be_loaded_afterwards():
    assert hidden(ALONE)


@pytest.mark.parametrize("first", ["", "import platform\n", "import uuid\n", "import platform, uuid\n"])
def test_uuid_and_platform_are_themselves_afterwards(first):
    told = "import platform, uuid\nassert platform.python_version() and uuid.uuid4().version == 4"
    subprocess.run([sys.executable, "-c", f"{FRESH}{first}{ALONE}\n{told}"], timeout=60, check=True)


LATER = """
import sys
assert "textwrap" not in sys.modules and "msgspec.inspect" not in sys.modules
import msgspec
class Thing(msgspec.Struct):
    "A thing."
    name: str
assert msgspec.json.schema(Thing)["$defs"]["Thing"]["description"] == "A thing."
assert msgspec.inspect.type_info(Thing).cls is Thing
assert msgspec.toml.decode(b"a = 1") == {"a": 1}
import msgspec.inspect, textwrap
assert msgspec.inspect.StructType and textwrap.dedent(" a") == "a"
"""


def test_the_parts_that_nobody_asked_for_are_loaded_when_somebody_does():
    subprocess.run([sys.executable, "-c", f"{FRESH}{ALONE}\n{LATER}"], timeout=60, check=True)


@pytest.mark.parametrize("first", [LOADED, MSGSPEC_FIRST, THREADED])
def test_nothing_is_hidden_from_somebody_who_has_it_or_may_want_it(first):
    assert not hidden(first)
