"""Change documents of nested mappings and lists: YAML and JSON, as values and as the text in which they are written."""

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import yaml

from tests.reliability.fuzz.mutations.of_bytes import damaged_bytes
from tests.reliability.fuzz.mutations.wrong_values import TEXTS, wrong_value

Steps = tuple[str | int, ...]

_YAML_1_1 = ("1:30", "1_0", "0x1F", "010", "yes", "off", "1e3", "0b11", "+.inf", ".nan", "!!binary aGk=", "2001-01-01")
_ALIASES = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""Eight times eight times eight: some hundred bytes that are millions of values."""


def damaged_yaml(data: bytes, draw: Random) -> bytes:
    """Return a YAML document with a change of its values, its text, its bytes, or two of them."""
    if draw.random() < 0.75:
        tree = changed_tree(yaml.safe_load(data), draw)
        data = yaml.safe_dump(tree, sort_keys=False, allow_unicode=draw.random() < 0.5).encode(errors="surrogatepass")
    if draw.random() < 0.25:
        data = draw.choice(_YAML_CHANGES)(data.decode(errors="replace"), draw).encode(errors="surrogatepass")
    return damaged_bytes(data, draw) if draw.random() < 0.15 else data


def damaged_json(data: bytes, draw: Random) -> bytes:
    """Return a JSON document with a change of its values, its text, its bytes, or two of them."""
    if draw.random() < 0.75:
        # Python writes what JSON does not have, NaN, and reads it too.
        data = json.dumps(changed_tree(json.loads(data), draw), ensure_ascii=draw.random() < 0.5).encode(
            errors="surrogatepass"
        )
    if draw.random() < 0.2:
        data = draw.choice(_JSON_CHANGES)(data.decode(errors="replace"), draw).encode()
    return damaged_bytes(data, draw) if draw.random() < 0.15 else data


def other_values(data: bytes, draw: Random) -> bytes:
    """Return a JSON document with other values in it, for what is known to be JSON."""
    return json.dumps(changed_tree(json.loads(data), draw)).encode()


def changed_tree(tree: Any, draw: Random) -> Any:
    """Return a copy of the document with one to three changes."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        tree = draw.choice(_CHANGES)(copy.deepcopy(tree), draw)
    return tree


def _paths(tree: Any, at: Steps = ()) -> Iterator[Steps]:
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, value in entries:
        yield (*at, step)
        yield from _paths(value, (*at, step))


def _drawn(tree: Any, draw: Random) -> tuple[Any, Any] | None:
    """Return what holds a value that was drawn, and the value's key or position there; None if there is none."""
    # As many at each depth: otherwise long lists of alike values were nearly all that changes.
    paths = list(_paths(tree))
    if not paths:
        return None
    depth = draw.choice(sorted({len(path) for path in paths}))
    path = draw.choice([path for path in paths if len(path) == depth])
    for step in path[:-1]:
        tree = tree[step]
    return tree, path[-1]


def _replaced(tree: Any, draw: Random) -> Any:
    if (found := _drawn(tree, draw)) is None:
        return wrong_value(draw)
    holder, step = found
    holder[step] = wrong_value(draw)
    return tree


def _nudged(tree: Any, draw: Random) -> Any:
    """Keep a value's type: another number, or a text with more in it."""
    if (found := _drawn(tree, draw)) is not None:
        holder, step = found
        value = holder[step]
        if isinstance(value, str):
            holder[step] = draw.choice((value + draw.choice(TEXTS), draw.choice(TEXTS), f"-{value}", value.upper()))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            holder[step] = draw.choice((-value, value + 1, value - 1, value * 1000, value // 3, value * 10**20, 0))
        elif isinstance(value, list):
            holder[step] = draw.choice((value * 2, value[:1], value[::-1], value * 500))
    return tree


def _without(tree: Any, draw: Random) -> Any:
    if (found := _drawn(tree, draw)) is not None:
        holder, step = found
        del holder[step]
    return tree


def _renamed(tree: Any, draw: Random) -> Any:
    if (found := _drawn(tree, draw)) is not None:
        holder, step = found
        if isinstance(holder, dict):
            value = holder.pop(step)
            holder[draw.choice((f"{step}s", str(step)[:-1], str(step).upper(), draw.choice(TEXTS)))] = value
        else:
            holder.insert(step, holder[step])
    return tree


def _swapped(tree: Any, draw: Random) -> Any:
    one, other = _drawn(tree, draw), _drawn(tree, draw)
    if one is not None and other is not None:
        moved = copy.deepcopy(other[0][other[1]])
        one[0][one[1]] = moved
    return tree


_CHANGES: tuple[Callable[[Any, Random], Any], ...] = (
    _replaced,
    _replaced,
    _nudged,
    _nudged,
    _without,
    _renamed,
    _swapped,
)


def _line_twice(text: str, draw: Random) -> str:
    lines = text.splitlines(keepends=True)
    place = draw.randrange(len(lines)) if lines else 0
    return "".join([*lines[: place + 1], *lines[place:]])


def _with_other(text: str, draw: Random, pattern: str, values: Sequence[str]) -> str:
    """Return the text with one of the values in place of what the pattern's group matches somewhere."""
    places = list(re.finditer(pattern, text))
    if not places:
        return text
    place = draw.choice(places)
    return text[: place.start(1)] + draw.choice(values) + text[place.end(1) :]


def _other_value(text: str, draw: Random) -> str:
    own = ("*nothing", "&a [*a]", "!!python/object:os.system x", "<<", "- ", "|", "'", "\t", "?")
    return _with_other(text, draw, r": ([^\s{}\[\],]+)", (*_YAML_1_1, *own))


_YAML_CHANGES: tuple[Callable[[str, Random], str], ...] = (
    _line_twice,
    _other_value,
    _other_value,
    lambda text, _: _ALIASES + text,
    lambda text, _: text + "\n<<: *missing\n",
    lambda text, _: text + "\n---\n" + text,
    lambda text, _: "%YAML 1.1\n---\n" + text,
    lambda text, _: text.replace("  ", "\t", 3),
    lambda _, draw: draw.choice(
        ("", "[" * 5000, "{" * 5000, "a: " * 3000, "- " * 3000, "? " * 3000, "null", "[]", "7")
    ),
)


def _json_value(text: str, draw: Random) -> str:
    values = ("NaN", "-Infinity", "1e999", "9" * 5000, '"\\ud800"', "01", "nul", '"\x07"', "[" * 2000 + "]" * 2000)
    return _with_other(text, draw, r": (-?[0-9.]+|\"[^\"]*\")", values)


_JSON_CHANGES: tuple[Callable[[str, Random], str], ...] = (
    _json_value,
    _json_value,
    lambda text, _: text.replace("{", '{"a": 1, "a": 2, ', 1),
    lambda text, _: text + text,
    lambda text, _: text.replace("}", ",}", 1),
    lambda _, draw: draw.choice(("", "[" * 100_000, '{"a":' * 100_000, "null", "[]", "7", '"a"', "{}")),
)
