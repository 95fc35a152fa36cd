"""Translate the chapters of a book, publish it once, and survive being killed at any moment.

    python examples/translate.py          kill it with kill -9 or Ctrl-C whenever you like, and start it again

Its run has an id: started once more when all is done, it finds that, and nothing is done again.

It keeps its log in book/holdfast.db and its result in book/published.txt. Nothing in it talks to a network.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import holdfast

BOOK = Path(sys.argv[1] if len(sys.argv) > 1 else "book")
PAUSE = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0


@dataclass
class Chapter:
    id: str
    title: str


def outline(book: str) -> list[Chapter]:
    print("making the outline")
    return [Chapter(f"c{number}", f"{book}, part {number}") for number in range(1, 9)]


def translate(chapter: Chapter) -> str:
    print(f"translating {chapter.title}")
    time.sleep(PAUSE)  # where a model would be asked
    return chapter.title.upper()


def publish(texts: list[str]) -> None:
    print("publishing")
    with open(BOOK / "published.txt", "a") as file:
        file.write("\n".join(texts) + "\n---\n")


def already_published(texts: list[str]) -> bool:
    file = BOOK / "published.txt"
    return file.exists() and "\n".join(texts) in file.read_text()


BOOK.mkdir(exist_ok=True)
STORE = str(BOOK / "holdfast.db")
with holdfast.run("translate-book", run_id="moby-dick", inputs={"book": "Moby-Dick"}, store=STORE) as run:
    chapters = run.step("outline", outline, "Moby-Dick")
    texts = [run.step(f"translate/{chapter.id}", translate, chapter) for chapter in chapters]
    run.effect("publish", publish, texts, policy="once", probe=already_published)
    print(f"done: run {run.run_id}")
