"""Trust by content and place, kept where no repository can write."""

import json
import os
import stat
import subprocess
import sys

import pytest

from holdfast.adapters.trust import Trust, Untrusted, Verdict
from holdfast.core.acts import Act
from holdfast.core.errors import NewerSchema, UsageError

TOML = "holdfast.toml"
FILES = {TOML: b"[verify]\ntier0=['make test']\n"}
QUIET = {TOML: b"[run]\nparallel=1\n"}


@pytest.fixture
def top(tmp_path):
    made = tmp_path / "repo"
    made.mkdir()
    return str(made)


@pytest.fixture
def book(tmp_path):
    return Trust(str(tmp_path / "state" / "holdfast"))


def listed(book):
    return os.path.join(book.folder, "trusted.json")


def test_nothing_is_trusted_until_it_is_and_looking_writes_nothing(book, top):
    act = Act(TOML, "verify.tier0", "make test")
    assert book.check(top, FILES) == Verdict("unknown", (TOML,), (act,))
    assert not os.path.exists(book.folder)
    book.trust(top, FILES)
    assert book.check(top, FILES) == Verdict("trusted")
    assert stat.S_IMODE(os.stat(listed(book)).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(book.folder).st_mode) == 0o700


def test_a_file_that_names_nothing_needs_no_trust(book, top):
    assert book.check(top, QUIET).state == "trusted" and book.check(top, {}).state == "trusted"


def test_any_other_byte_is_asked_about_again(book, top):
    book.trust(top, FILES)
    found = book.check(top, {TOML: FILES[TOML] + b"# x\n"})
    assert (found.state, found.what, found.before) == ("changed", (TOML,), found.acts)
    found = book.check(top, {TOML: b"[verify]\ntier0=['make evil']\n"})
    assert (found.acts[0].text, found.before[0].text) == ("make evil", "make test")


def test_trust_is_of_a_place_and_a_name_too(book, top, tmp_path):
    book.trust(top, FILES)
    assert book.check(str(tmp_path / "copy"), FILES).state == "unknown"
    assert book.check(top, {"other": FILES[TOML]}).state == "unknown"
    (tmp_path / "way").symlink_to(top)
    assert book.check(str(tmp_path / "way"), FILES).state == "trusted"


def test_an_entry_that_is_copied_to_another_place_carries_no_trust(book, top, tmp_path):
    book.trust(top, FILES)
    with open(listed(book), encoding="utf-8") as file:
        document = json.load(file)
    document["repositories"][str(tmp_path / "copy")] = document["repositories"][top]
    with open(listed(book), "w", encoding="utf-8") as file:
        json.dump(document, file)
    assert book.check(str(tmp_path / "copy"), FILES).state == "changed" and book.check(top, FILES).state == "trusted"


def test_each_file_is_trusted_by_itself(book, top):
    book.trust(top, FILES)
    spec = {"specs/a": b"make a"}
    assert book.check(top, FILES | spec) == Verdict("unknown", ("specs/a",), (Act("specs/a", "", "make a"),))
    book.trust(top, spec)
    assert book.check(top, FILES | spec).state == "trusted"
    assert book.check(top, FILES).state == "trusted"


def test_what_is_required_and_not_trusted_is_listed_with_the_way_to_accept_it(book, top):
    with pytest.raises(Untrusted) as caught:
        book.require(top, FILES)
    assert "verify.tier0 make test" in str(caught.value) and "is not trusted yet" in str(caught.value)
    assert caught.value.reason == "untrusted" and "`holdfast trust`" in caught.value.advice
    book.trust(top, FILES)
    book.require(top, FILES)
    many = "\n".join(f"make {number}" for number in range(30)).encode()
    with pytest.raises(Untrusted, match="specs/a make 19; and 10 more"):
        book.require(top, {"specs/a": many})
    with pytest.raises(Untrusted, match="has changed since you trusted it"):
        book.require(top, {TOML: FILES[TOML] + b"#"})


def test_forgetting(book, top):
    assert book.forget(top) is False and not os.path.exists(book.folder)
    book.trust(top, FILES)
    assert book.forget(top) is True and book.forget(top) is False
    assert book.check(top, FILES).state == "unknown"


# --- a list that cannot be believed


def ours(files: object) -> str:
    return json.dumps({"schema_version": 1, "repositories": {"TOP": files}})


@pytest.mark.parametrize(
    "content",
    [
        *(
            "",
            "{",
            "[]",
            "null",
            "{}",
            '{"schema_version": 1}',
            '{"schema_version": 1, "repositories": []}',
            "[" * 100000,
        ),
        *(ours(5), ours({"f": 5}), ours({TOML: {"digest": 5, "acts": []}}), ours({TOML: {"digest": "x"}})),
        *(ours({TOML: {"digest": "x", "acts": [pair]}}) for pair in (["a"], [1, 2], "ab")),
    ],
)
def test_a_damaged_list_trusts_nothing_says_so_and_is_set_aside(book, top, content):
    os.makedirs(book.folder)
    with open(listed(book), "w", encoding="utf-8") as file:
        file.write(content.replace("TOP", top))
    found = book.check(top, FILES)
    assert found.state == "unknown" and "nothing is trusted" in found.problem and "it is damaged" in found.problem
    with pytest.raises(Untrusted, match="it is damaged"):
        book.require(top, FILES)
    book.trust(top, FILES)
    assert book.check(top, FILES) == Verdict("trusted")
    with open(listed(book) + ".damaged", encoding="utf-8") as file:
        assert file.read() == content.replace("TOP", top)


def test_a_list_that_others_may_write_trusts_nothing(book, top):
    book.trust(top, FILES)
    os.chmod(listed(book), 0o620)
    found = book.check(top, FILES)
    assert found.state == "unknown" and "somebody else may write it" in found.problem


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_list_of_somebody_else_trusts_nothing(book, top):
    book.trust(top, FILES)
    os.chown(listed(book), 12345, -1)
    assert "somebody else may write it" in book.check(top, FILES).problem


def test_a_list_that_is_a_link_trusts_nothing(book, top, tmp_path):
    book.trust(top, FILES)
    os.rename(listed(book), tmp_path / "elsewhere.json")
    os.symlink(tmp_path / "elsewhere.json", listed(book))
    assert book.check(top, FILES).state == "unknown"


def test_a_list_inside_the_repository_is_never_believed(top):
    inside = Trust(os.path.join(top, "state"))
    with pytest.raises(UsageError, match="lies inside the repository"):
        inside.trust(top, FILES)
    honest = Trust(os.path.join(os.path.dirname(top), "state"))
    honest.trust(top, FILES)
    os.rename(honest.folder, inside.folder)
    found = inside.check(top, FILES)
    assert found.state == "unknown" and "lies inside the repository" in found.problem


def test_a_list_of_a_newer_holdfast_is_left_alone(book, top):
    os.makedirs(book.folder)
    with open(listed(book), "w", encoding="utf-8") as file:
        json.dump({"schema_version": 2, "repositories": {}}, file)
    assert "newer Holdfast" in book.check(top, FILES).problem
    with pytest.raises(NewerSchema):
        book.trust(top, FILES)
    assert os.listdir(book.folder) == ["trusted.json"]


# --- many at once, and killed


WRITER = """
import sys
from holdfast.adapters.trust import Trust
for number in range(20):
    Trust(sys.argv[1]).trust(sys.argv[2] + f"/{sys.argv[3]}-{number}", {"specs/a": b"make"})
"""


def test_writers_at_the_same_time_lose_nothing(book, top):
    started = [subprocess.Popen([sys.executable, "-c", WRITER, book.folder, top, name]) for name in "abc"]
    assert [process.wait(timeout=60) for process in started] == [0, 0, 0]
    with open(listed(book), encoding="utf-8") as file:
        assert len(json.load(file)["repositories"]) == 60
    assert os.listdir(book.folder) == ["trusted.json"]


def test_what_a_killed_writer_left_does_no_harm(book, top):
    book.trust(top, FILES)
    with open(listed(book) + ".new", "w", encoding="utf-8") as file:
        file.write("half")
    assert book.check(top, FILES).state == "trusted"
    book.trust(top, {"specs/a": b"make"})
    assert book.check(top, FILES).state == "trusted" and os.listdir(book.folder) == ["trusted.json"]


def test_a_name_of_any_bytes_can_be_trusted(book, tmp_path):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n")
    os.mkdir(odd)
    book.trust(odd, FILES)
    assert book.check(odd, FILES).state == "trusted"
