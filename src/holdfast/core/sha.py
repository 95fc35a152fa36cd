"""The one SHA-256. Loading OpenSSL's takes a fresh process 3 ms: it is loaded for what is large or many, where it is quicker."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:
        from _sha2 import sha256  # Python 3.12 and later
    except ImportError:
        from _sha256 import sha256

__all__ = ["hexdigest", "of_many", "sha256"]

_LARGE = 64 * 1024


def hexdigest(data: bytes) -> str:
    text: str = (sha256 if len(data) < _LARGE else of_many())(data).hexdigest()
    return text


@cache
def of_many() -> Any:
    """For who hashes a thousand events or more: by then it has won back what it took to load."""
    try:
        from _hashlib import openssl_sha256  # what hashlib hands on, without the rest of it
    except ImportError:
        from hashlib import sha256 as openssl_sha256

    return openssl_sha256
