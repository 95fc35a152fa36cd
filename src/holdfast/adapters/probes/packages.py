"""Installs one Python package into one environment, and says whether it is whole. Builds nothing and imports nothing.

Only wheels are installed, without their dependencies. The probe reads the metadata of the environment with its own
interpreter, started so that neither the package nor any `.pth` file of the environment runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import msgspec

from holdfast.adapters.probes.common import EffectError, at_rest, check_key, hold, sure
from holdfast.adapters.probes.programs import Finished, Limits, run, search_path
from holdfast.core.errors import UsageError
from holdfast.core.stops import snippet
from holdfast.core.values import Answer

SECONDS = 600.0
LOOK_SECONDS = 120.0
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]*")
_KEPT = (
    *("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "LANG", "LC_ALL"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
)

# Runs in the other interpreter, which may be older than ours; so it only collects, and says it as JSON.
LOOK = """
import base64, csv, hashlib, importlib.metadata, json, os, site, stat, sys

def prefix_and_sites():
    here = os.path.dirname(os.path.abspath(sys.executable))
    for prefix in (here, os.path.dirname(here)):
        try:
            with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8") as file:
                lines = [line.partition("=") for line in file]
        except OSError:
            continue
        said = {name.strip().lower(): value.strip().lower() for name, _, value in lines}
        more = [sys.prefix] if said.get("include-system-site-packages") == "true" else []
        outer = site.getsitepackages(more)
        sys.prefix = prefix  # by this the Python of Debian knows that its own folders do not count here
        return prefix, site.getsitepackages([prefix]) + outer
    return sys.prefix, site.getsitepackages([sys.prefix])

def missing(found):
    record = found.read_text("RECORD")
    if not record:
        return "RECORD"
    for path, digest, _ in csv.reader(record.splitlines()):
        if not path.endswith(".pyc") and not is_whole(str(found.locate_file(path)), digest):
            return path
    return None

def is_whole(path, digest):
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        if not digest:
            return True
        name, _, value = digest.partition("=")
        sum_ = hashlib.new(name)
        with open(path, "rb") as file:
            for piece in iter(lambda: file.read(1 << 20), b""):
                sum_.update(piece)
    except (OSError, ValueError):
        return False
    return base64.urlsafe_b64encode(sum_.digest()).rstrip(b"=").decode() == value

prefix, sites = prefix_and_sites()
sites = [path for path in dict.fromkeys(sites) if os.path.isdir(path)]
found = list(importlib.metadata.distributions(name=sys.argv[1], path=sites))
said = [{"version": each.metadata["Version"], "missing": missing(each)} for each in found]
sys.stdout.write(json.dumps({"prefix": prefix, "found": said}))
"""


class Copy(msgspec.Struct, frozen=True):
    """One time that the metadata of the package was found: the version it states, and the first file that is not whole."""

    version: str | None
    missing: str | None


class Found(msgspec.Struct, frozen=True):
    """What an environment says about a package."""

    prefix: str
    found: tuple[Copy, ...]


@dataclass(frozen=True)
class PackageInstall:
    """`name==version` in the environment of the interpreter `python`, from `wheels` (a folder) or from an index.

    `before` is the version that was installed, None if there was none. Without `wheels` and `index`, pip asks where
    the user's own pip configuration says. `version` is compared letter by letter with the metadata.
    """

    policy: ClassVar[Literal["probed"]] = "probed"

    python: str
    name: str
    version: str
    before: str | None = None
    wheels: str | None = None
    index: str | None = None
    environ: Mapping[str, str] | None = field(default=None, repr=False, compare=False)
    seconds: float = field(default=SECONDS, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or not _VERSION.fullmatch(self.version):
            raise UsageError(f"{self.name!r:.80} == {self.version!r:.80} does not name a package and its version.")
        if not all(os.path.isabs(path) for path in (self.python, self.wheels or self.python)):
            raise UsageError("The interpreter and the folder of wheels must be absolute paths.")
        if self.index is not None and (self.wheels or not self.index.startswith(("https://", "http://"))):
            raise UsageError("The index must be an http or https URL, and not come with a folder of wheels.")

    @classmethod
    def prepare(cls, python: str, name: str, version: str, **more: Any) -> PackageInstall:
        """The effect as it stands now. Keep what it `found` before the act: afterwards it cannot be found out any more."""
        found = cls(python, name, version, **more)._find()
        if len(found.found) > 1:
            raise EffectError(f"{name} is installed {len(found.found)} times in {found.prefix}.")
        return cls(python, name, version, found.found[0].version if found.found else None, **more)

    @property
    def found(self) -> dict[str, Any]:
        """What `prepare` found out, by the names under which the constructor takes it."""
        return {"before": self.before}

    @property
    def arguments(self) -> dict[str, Any]:
        where = {"wheels": self.wheels, "index": self.index}
        return {"python": self.python, "name": self.name, "version": self.version, "before": self.before, **where}

    def act(self, key: str) -> dict[str, Any]:
        """Install it, unless it is installed. What is half there, or is another version than expected, is left alone."""
        check_key(key)
        prefix = self._find().prefix
        with hold(prefix) as lock:
            answer = self._judge(self._find())
            if answer.settled_as == "unknown":
                raise EffectError(f"{self.name} is not as it was when this was planned: {answer.evidence}.")
            if answer.settled_as == "not_done":
                self._install(lock)
        return self._receipt()

    def probe(self, key: str) -> Answer:
        return sure(lambda: self._answer(key))

    def _answer(self, key: str) -> Answer:
        check_key(key)
        if not at_rest(self._find().prefix):
            return Answer("unknown", "a pip of this or another effect is still at work in the environment")
        answer = self._judge(self._find())
        if answer.settled_as == "done":
            os.sync()  # what is called done must not be undone by a loss of power
        return answer

    def _judge(self, found: Found) -> Answer:
        if len(found.found) > 1:
            return Answer("unknown", f"{self.name} is there {len(found.found)} times in {found.prefix}")
        if not found.found:
            return Answer("not_done", f"{self.name} is not installed in {found.prefix}")
        version, missing = found.found[0].version, found.found[0].missing
        if missing is not None or version is None:
            return Answer(
                "unknown", f"{self.name} {version} is there, but {missing or 'METADATA'} is missing or changed"
            )
        if version == self.version:
            return Answer("done", f"{self.name} {version} is installed in {found.prefix}", self._receipt())
        return Answer("not_done" if version == self.before else "unknown", f"{self.name} is there in version {version}")

    def _receipt(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version, "python": self.python}

    # --- the other interpreter

    def _install(self, lock: int) -> None:
        source: tuple[str, ...] = ()
        if self.wheels is not None:
            source = ("--isolated", "--no-index", "--find-links", self.wheels)
        elif self.index is not None:
            source = ("--isolated", "--index-url", self.index)
        plain = ("--no-input", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--quiet")
        argv = ("-I", "-m", "pip", "install", *plain, *source, f"{self.name}=={self.version}")
        finished = self._run(argv, self.seconds, (lock,))
        answer = self._judge(self._find())
        if answer.settled_as != "done":
            said = f"pip ended with code {finished.code} ({complaint(finished)})"
            raise EffectError(f"{self.name}=={self.version} was not installed: {said}; {answer.evidence}.")
        os.sync()  # pip syncs nothing

    def _find(self) -> Found:
        finished = self._run(("-I", "-S", "-B", "-c", LOOK, self.name), min(self.seconds, LOOK_SECONDS))
        if finished.code:
            raise EffectError(f"{self.python} cannot say what is installed: {complaint(finished)}")
        try:
            return msgspec.json.decode(finished.out, type=Found)
        except msgspec.MsgspecError as error:
            raise EffectError(f"{self.python} is not a Python interpreter that can be asked: {error}.") from None

    def _run(self, argv: tuple[str, ...], seconds: float, keep: tuple[int, ...] = ()) -> Finished:
        given = os.environ if self.environ is None else self.environ
        kept = {name: given[name] for name in _KEPT if name in given}
        return run([self.python, *argv], {**kept, "PATH": search_path(given)}, Limits(seconds), keep=keep)


def complaint(finished: Finished) -> str:
    lines = finished.err.decode("utf-8", "replace").strip().splitlines()
    return snippet(lines[-1]) if lines else "no message"
