"""Split a manifest into single fields, each with its path."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

_COMMANDS = ("command", "setup")


def flattened(document: Any, *, named: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield every single value of a JSON document with its dotted path, as used in overrides of an experiment file.

    Entries of a list are numbered from 0. With ``named``, entries that have a name use it instead, and a list of plain
    values is one value. A command of a user's program is one value, as ``command_text`` writes it.
    """
    return _below(document, "", named)


def command_text(words: list[str]) -> str:
    """Return the words of a command as one would type them."""
    return shlex.join(words)


def is_command(name: str, value: Any) -> bool:
    """Return whether a field of this name and value is a command of a user's program."""
    words = isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value)
    return name in _COMMANDS and words and bool(value)


def _below(document: Any, path: str, named: bool) -> Iterator[tuple[str, Any]]:
    if isinstance(document, Mapping) and document:
        children = [(str(name), value) for name, value in document.items()]
    elif isinstance(document, (list, tuple)) and document and not (named and _plain(document)):
        children = [(_entry(position, value, named), value) for position, value in enumerate(document)]
    else:
        yield path, document
        return
    for step, value in children:
        if is_command(step, value):
            yield f"{path}.{step}" if path else step, command_text(value)
            continue
        yield from _below(value, f"{path}.{step}" if path else step, named)


def _plain(values: Any) -> bool:
    return not any(isinstance(value, (Mapping, list, tuple)) for value in values)


def _entry(position: int, value: Any, named: bool) -> str:
    return str(value.get("name", position)) if named and isinstance(value, Mapping) else str(position)
