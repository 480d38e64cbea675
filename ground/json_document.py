"""Read the JSON that users write, within bounds. Any fault in a document is an InputError of one line."""

import json
from pathlib import Path
from typing import Any

from wanbed.ground.errors import MAX_DIGITS, InputError
from wanbed.ground.files import read_bounded

MAX_FILE_BYTES = 4 * 2**20


def read_content(path: Path, what: str) -> bytes:
    """Return the content of the file of a ``what``. Raise InputError, one line that starts with the path.

    A content that is too long is cut, and refused by ``parse_content``.
    """
    try:
        return read_bounded(path, MAX_FILE_BYTES)
    except OSError as fault:
        raise InputError(f"{path}: {fault.strerror}, give a readable {what}") from None


def parse_content(content: bytes, source: str, what: str, example: str) -> dict[str, Any]:
    """Return the object that is the content of a ``what``. Raise InputError, one line that starts with ``source``."""
    if len(content) > MAX_FILE_BYTES:
        raise InputError(f"{source}: larger than {MAX_FILE_BYTES} bytes, which no {what} is")
    try:
        document = json.loads(content, parse_int=_whole_number)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise InputError(f"{source}: not JSON: {fault}") from None
    except ValueError as refusal:
        raise InputError(f"{source}: {refusal}") from None
    if not isinstance(document, dict):
        raise InputError(f"{source}: a {what} is an object, write it like {example}")
    return document


def _whole_number(written: str) -> int:
    if len(written) > MAX_DIGITS:
        raise ValueError(f"a number in it has {len(written)} digits, more than {MAX_DIGITS}")
    return int(written)
