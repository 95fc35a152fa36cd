"""What never changes is asked once. Who remembers more than so much forgets all of it, and asks again."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Few(dict[K, V]):
    """A dict that begins anew when it holds `most`. May be used by many threads: what one forgets, another finds out again."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self.most:
            self.clear()
        super().__setitem__(key, value)
