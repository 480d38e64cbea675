"""Damage bytes of any format: bits that flip, parts that are missing, repeated or overwritten, other encodings."""

import codecs
import struct
from collections.abc import Callable
from random import Random

_EXTREMES = (0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)
_UTF8 = "utf-8"


def damaged_bytes(data: bytes, draw: Random) -> bytes:
    """Return the data, damaged one to three times."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        data = draw.choice(DAMAGES)(data, draw)
    return data


def flipped(data: bytes, draw: Random) -> bytes:
    """Flip one bit in up to eight places."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 8) if data else 0):
        changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def truncated(data: bytes, draw: Random) -> bytes:
    """Keep the beginning only, or the end."""
    place = draw.randint(0, len(data))
    return data[:place] if draw.random() < 0.8 else data[place:]


def without_a_part(data: bytes, draw: Random) -> bytes:
    """Leave some bytes out."""
    begin, end = _part(data, draw)
    return data[:begin] + data[end:]


def with_a_part_twice(data: bytes, draw: Random) -> bytes:
    """Repeat some bytes."""
    begin, end = _part(data, draw)
    return data[:end] + data[begin:]


def overwritten(data: bytes, draw: Random) -> bytes:
    """Put a number at the end of what fits, or bytes drawn at random, over what was there."""
    number = struct.pack(draw.choice("<>") + "I", draw.choice(_EXTREMES))
    part = draw.choice((number, number[:2], bytes(16), b"\xff" * 16, draw.randbytes(16)))
    place = draw.randint(0, len(data))
    return data[:place] + part + data[place + len(part) :]


def in_another_encoding(data: bytes, draw: Random) -> bytes:
    """Add a byte order mark, change the ends of lines, or encode the text otherwise."""
    text = data.decode(_UTF8, errors="replace")
    return draw.choice(
        (
            codecs.BOM_UTF8 + data,
            data.replace(b"\n", b"\r\n"),
            data.replace(b"\n", b"\r"),
            text.encode("utf-16"),
            text.encode("utf-16-le", errors="replace"),
            data + "é".encode("latin-1"),
            data.replace(b"\n", b"\0", 1),
        )
    )


DAMAGES: tuple[Callable[[bytes, Random], bytes], ...] = (
    flipped,
    truncated,
    without_a_part,
    with_a_part_twice,
    overwritten,
    in_another_encoding,
)


def _part(data: bytes, draw: Random) -> tuple[int, int]:
    begin = draw.randint(0, len(data))
    return begin, min(len(data), begin + draw.choice((1, 4, 50, 1000)))
