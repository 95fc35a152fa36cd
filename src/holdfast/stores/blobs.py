"""Artifact bytes in storage: by SHA-256, compressed when that helps. Refuses bytes that no longer have their hash."""

from __future__ import annotations

import sys
from types import ModuleType

from holdfast.core.errors import ArtifactDamaged, TooLarge
from holdfast.core.sha import hexdigest

PLAIN, ZSTD = "plain", "zstd"
IN_PARTS = "Keep it in parts, or as a file of your own whose hash you record."
SMALL = 256
MAX_ARTIFACT = 512 * 1024 * 1024


def digest_of(data: bytes) -> str:
    return hexdigest(data)


def pack(data: bytes) -> tuple[str, bytes]:
    """How to store these bytes: small or incompressible ones stay as they are."""
    if len(data) > MAX_ARTIFACT:
        raise TooLarge("The artifact", len(data), MAX_ARTIFACT, advice=IN_PARTS)
    if len(data) <= SMALL:
        return PLAIN, data
    packed: bytes = _zstd().compress(data)
    return (ZSTD, packed) if len(packed) < len(data) else (PLAIN, data)


def unpack(digest: str, encoding: str, size: int, stored: bytes) -> bytes:
    """The bytes of a digest; never more than their recorded size, never other bytes."""
    if not 0 <= size <= MAX_ARTIFACT:
        raise ArtifactDamaged(digest)
    data = stored if encoding == PLAIN else _inflate(digest, size, stored)
    if len(data) != size or digest_of(data) != digest:
        raise ArtifactDamaged(digest)
    return data


def _inflate(digest: str, size: int, stored: bytes) -> bytes:
    zstd = _zstd()
    try:
        data: bytes = zstd.ZstdDecompressor().decompress(stored, max_length=size + 1)
    except zstd.ZstdError:
        raise ArtifactDamaged(digest) from None
    return data


def _zstd() -> ModuleType:
    """Loaded when first needed: most commands never touch an artifact."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd
