"""Read the JSON file of a compute profile or a prefill profile, and parse it by its ``basis``."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from wanbed.ground.files.regular_file import regular_file
from wanbed.ground.shown_text import MAX_DIGITS
from wanbed.ground.strict_model import InputError, StrictModel, parse_model

MAX_FILE_BYTES = 4 * 2**20

Model = TypeVar("Model", bound=StrictModel)


def _whole_number(written: str) -> int:
    if len(written) > MAX_DIGITS:
        raise ValueError(f"a number in it has {len(written)} digits, more than {MAX_DIGITS}")
    return int(written)


def read_content(path: Path, what: str) -> bytes:
    """Read at most ``MAX_FILE_BYTES`` + 1 bytes of the file. Raise InputError, one line with the path."""
    try:
        with regular_file(path).open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as fault:
        raise InputError(f"{path}: {fault.strerror or fault}, give a readable {what}") from None


def parse_content(path: Path, content: bytes, models: Mapping[str, type[Model]], what: str, example: str) -> Model:
    """Parse the ``content`` of that file by the model for its ``basis``. Raise InputError, one line with the path."""
    if len(content) > MAX_FILE_BYTES:
        raise InputError(f"{path}: larger than {MAX_FILE_BYTES} bytes, which no {what} is")
    try:
        document = json.loads(content, parse_int=_whole_number)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise InputError(f"{path}: not JSON: {fault}") from None
    except ValueError as refusal:
        raise InputError(f"{path}: {refusal}") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: a {what} is an object, write it like {example}")
    basis = document.get("basis")
    if not isinstance(basis, str) or basis not in models:
        raise InputError(f"{path}: basis: write whether the profile is {' or '.join(models)}")
    return parse_model(models[basis], document, str(path))
