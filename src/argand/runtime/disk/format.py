"""runtime.disk.format: the bytes of a cache file. No pickle, no eval: named sections and a checksum.

::

    magic    8 bytes   b"ARGAND\\r\\n"    (a text-mode copy breaks it visibly)
    version  u32       FORMAT
    count    u32       number of sections
    table    count x (name 24 bytes, offset u64, length u64)
    payload            the sections, back to back, in table order
    digest   32 bytes  blake2b of everything before, keyed when a key is given

All integers little-endian. ``decode`` trusts nothing before the digest holds, and raises ``Damaged``
with the reason for anything it does not like.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Mapping
from typing import Final

MAGIC: Final = b"ARGAND\r\n"
FORMAT: Final = 1
DIGEST_SIZE: Final = 32
MAX_SECTIONS: Final = 64
_HEAD: Final = struct.Struct("<8sII")
_ROW: Final = struct.Struct("<24sQQ")


class Damaged(Exception):
    """The bytes are not a file of this format: truncated, foreign, changed or too new."""


def digest(data: bytes | memoryview, key: bytes = b"") -> bytes:
    """The checksum of a file's bytes; with a key, an authentication code."""
    return hashlib.blake2b(data, digest_size=DIGEST_SIZE, key=key).digest()


def encode(sections: Mapping[str, bytes], key: bytes = b"") -> bytes:
    """A cache file from named sections."""
    if len(sections) > MAX_SECTIONS:
        raise ValueError(f"at most {MAX_SECTIONS} sections, got {len(sections)}")
    offset = _HEAD.size + _ROW.size * len(sections)
    parts = [_HEAD.pack(MAGIC, FORMAT, len(sections))]
    for name, data in sections.items():
        raw = name.encode("ascii")
        if not 0 < len(raw) <= 24:
            raise ValueError(f"section name {name!r} must have 1 to 24 characters")
        parts.append(_ROW.pack(raw, offset, len(data)))
        offset += len(data)
    parts.extend(sections.values())
    body = b"".join(parts)
    return body + digest(body, key)


def decode(data: bytes, key: bytes = b"") -> dict[str, bytes]:
    """The sections of a cache file."""
    if len(data) < _HEAD.size + DIGEST_SIZE:
        raise Damaged(f"truncated: {len(data)} bytes")
    magic, version, count = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise Damaged("not a cache file of Argand")
    if version != FORMAT:
        raise Damaged(f"format {version}, this Argand reads format {FORMAT}")
    body = memoryview(data)[:-DIGEST_SIZE]
    if not hmac.compare_digest(digest(body, key), data[-DIGEST_SIZE:]):
        raise Damaged("checksum differs: truncated, changed, or made with another key")
    if count > MAX_SECTIONS or _HEAD.size + count * _ROW.size > len(body):
        raise Damaged(f"{count} sections do not fit")
    return _read_sections(data, len(body), count)


def _read_sections(data: bytes, end: int, count: int) -> dict[str, bytes]:
    sections: dict[str, bytes] = {}
    expected = _HEAD.size + count * _ROW.size
    for index in range(count):
        raw, offset, length = _ROW.unpack_from(data, _HEAD.size + index * _ROW.size)
        if offset != expected or length > end - offset:
            raise Damaged(f"section {index} lies outside of the file")
        try:
            name = raw.rstrip(b"\0").decode("ascii")
        except UnicodeDecodeError:
            raise Damaged(f"section {index} has no readable name") from None
        sections[name] = data[offset : offset + length]
        expected = offset + length
    if expected != end:
        raise Damaged("bytes that belong to no section")
    return sections
