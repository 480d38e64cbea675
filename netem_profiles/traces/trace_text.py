"""Read the text of a trace file, within bounds. A fault is one line with the file and, where there is one, the line."""

from pathlib import Path

from wanbed.ground.files.regular_file import regular_file
from wanbed.ground.strict_model import LocatedError

MAX_TRACE_BYTES = 4 * 2**20
"""The longest trace, 4 MiB: it is kept, as it is, in the manifest of every run."""


def read_trace_text(path: Path) -> str:
    """Return the text of a file. Raise LocatedError for one that cannot be read, is too long, or is no text."""
    file = str(path)
    try:
        with regular_file(path).open("rb") as opened:
            content = opened.read(MAX_TRACE_BYTES + 1)
    except (OSError, ValueError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) and fault.strerror else str(fault)
        raise LocatedError(f"{file}: cannot be read ({reason}): give the path of a readable trace") from None
    return checked_text(content, file)


def checked_text(content: bytes, file: str) -> str:
    """Return the text of a trace; ``file`` starts messages. Raise LocatedError if it is too long or no text."""
    if len(content) > MAX_TRACE_BYTES:
        line = content.count(b"\n", 0, MAX_TRACE_BYTES) + 1
        raise LocatedError(
            f"{file}:{line}: more than {MAX_TRACE_BYTES >> 20} MiB up to here, too long for a trace: give fewer rows"
        )
    for fault in (_first(content, b"\0"), _not_utf8(content)):
        if fault is not None:
            line = content.count(b"\n", 0, fault) + 1
            raise LocatedError(f"{file}:{line}: not UTF-8 text: give a trace, like one with the header t_s,rate")
    return content.decode("utf-8-sig")


def _first(content: bytes, byte: bytes) -> int | None:
    position = content.find(byte)
    return None if position < 0 else position


def _not_utf8(content: bytes) -> int | None:
    try:
        content.decode()
    except UnicodeDecodeError as fault:
        return fault.start
    return None
