"""The world that a live run of the laboratory acts upon: files in one folder, and what somebody who reads them counts.

Nothing here knows of Holdfast beyond the ledger file and a lent transaction; what is counted is counted from outside.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from holdfast.adapters.ledger import Ledger, lines_in
from holdfast.core.values import Answer

KEYED, TILL, PROBED, GUARDED, BARE = "keyed", "till", "probed", "guarded", "bare"
EXACTLY_ONCE = (KEYED, TILL, PROBED, GUARDED)
TABLE = "create table if not exists app_till(run text, label text)"


class World:
    """What effects can do. `moment` is told when each begins and ends, for those who time their kills."""

    def __init__(self, folder: Path, run_id: str, mark: str, moment: Callable[[str], None] = lambda name: None) -> None:
        self.folder = folder / "world"
        self.folder.mkdir(exist_ok=True)
        self.run_id, self.mark, self.moment = run_id, mark, moment
        self.mail = Ledger(self.folder / "mail", self.moment)
        self.post = Ledger(self.folder / "post", self.moment)

    def charge(self, label: str, key: str) -> dict[str, str]:
        """A provider that knows keys: the second request with a key finds the first one's payment."""
        self.moment("begin")
        place = self.folder / f"{KEYED}-{key}"
        if not place.exists():
            fresh = place.with_name(f"new-{key}")
            fresh.write_text(label)
            fresh.rename(place)
        self.moment("end")
        return {"paid": label}

    def bare(self, label: str) -> dict[str, str]:
        """One line, and nobody who could say later whether it was written."""
        self.moment("begin")
        fd = os.open(self.folder / BARE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            line = f"{label}\n".encode()
            while line:
                line = line[os.write(fd, line) :]
        finally:
            os.close(fd)
        self.moment("end")
        return {"line": label}

    def send(self, label: str) -> dict[str, str]:
        self.moment("begin")
        self.mail.append(label)
        self.moment("end")
        return {"sent": label}

    def was_sent(self, label: str) -> Answer:
        return seen(self.mail, label, "sent")

    def ship(self, label: str) -> dict[str, str]:
        self.moment("begin")
        self.post.append(label)
        self.moment("end")
        return {"shipped": label}

    def was_shipped(self, label: str) -> Answer:
        return seen(self.post, label, "shipped")

    def pay_in(self, sql, label: str) -> dict[str, str]:
        """A row in the store's own database, without any constraint that would hide a second one."""
        self.moment("begin")
        sql.execute(TABLE)
        sql.execute(f"insert into app_till(run, label) values ({self.mark}, {self.mark})", (self.run_id, label))
        self.moment("end")
        return {"row": label}

    def put(self, label: str) -> str:
        """The same file with the same content, however often."""
        self.moment("begin")
        (self.folder / f"put-{label}").write_text(label)
        self.moment("end")
        return label

    def count(self) -> dict[str, Counter[str]]:
        """How often each thing was done, by kind; what is in the database is added by whoever can read it."""
        paid = (place.read_text() for place in self.folder.glob(f"{KEYED}-*"))
        bare = self.folder / BARE
        return {
            KEYED: Counter(paid),
            PROBED: Counter(labels_in(self.mail)),
            GUARDED: Counter(labels_in(self.post)),
            BARE: Counter(bare.read_text().splitlines() if bare.exists() else []),
        }


def seen(ledger: Ledger, label: str, word: str) -> Answer:
    sight = ledger.look(label)
    return Answer(sight.found, sight.evidence, {word: label} if sight.found == "done" else None)


def labels_in(ledger: Ledger) -> list[str]:
    place = Path(ledger.path)
    data = place.read_bytes() if place.exists() else b""
    return [line.split(b" ")[0].decode() for line in lines_in(data)]
