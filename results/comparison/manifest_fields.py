"""Split a manifest into single fields, each with its path."""

import shlex
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

_COMMANDS = ("command", "setup")
_COURSE, _TRACES = "course", "traces"


def flattened(document: Any, *, named: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield every single value of a JSON document with its dotted path, as used in overrides of an experiment file.

    Entries of a list are numbered from 0. With ``named``, entries that have a name use it instead, and a list of plain
    values is one value. A command of a user's program is one value, as ``command_text`` writes it; so are the course of
    a link that changes and the text of a trace, which may be long, as ``course_text`` and ``trace_text`` write them.
    """
    return _below(document, "", named)


def command_text(words: list[str]) -> str:
    """Return the words of a command as one would type them."""
    return shlex.join(words)


def course_text(course: Mapping[str, Any]) -> str:
    """Return the course of a link in one line: its source, how much it changes, and the begin of its digest."""
    drawn = ", synthetic" if course.get("synthetic") else ""
    period_ns = course.get("period_ns")
    loop = f", begins anew every {period_ns / 1e9:g} s" if period_ns else ""
    return (
        f"{course.get('source')} ({course.get('changes')} changes{drawn}{loop}, SHA-256 {course.get('sha256')!s:.12})"
    )


def trace_text(text: str) -> str:
    """Return a trace in one line: how long it is, and the begin of its digest."""
    return f"{len(text.splitlines())} lines, SHA-256 {sha256(text.encode()).hexdigest():.12}"


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
        if step == _COURSE and isinstance(value, Mapping):
            yield f"{path}.{step}" if path else step, course_text(value)
            continue
        if path.rpartition(".")[2] == _TRACES and isinstance(value, str):
            yield f"{path}.{step}", trace_text(value)
            continue
        if is_command(step, value):
            yield f"{path}.{step}" if path else step, command_text(value)
            continue
        yield from _below(value, f"{path}.{step}" if path else step, named)


def _plain(values: Any) -> bool:
    return not any(isinstance(value, (Mapping, list, tuple)) for value in values)


def _entry(position: int, value: Any, named: bool) -> str:
    return str(value.get("name", position)) if named and isinstance(value, Mapping) else str(position)
