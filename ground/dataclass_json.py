"""Write a frozen dataclass as JSON and read it back. A process is passed its configuration this way.

Fields may be other dataclasses, tuples, unions of those and None, string enumerations, and JSON's own types. Only the
standard library is used: every rank reads such a file, and importing pydantic would cost each a tenth of a second.
"""

import json
from dataclasses import asdict, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Config = TypeVar("Config")


def write_config(config: Any, path: Path) -> None:
    """Write the dataclass ``config`` as JSON, readable only by this user."""
    path.touch(mode=0o600)
    path.write_text(json.dumps(asdict(config), indent=1), encoding="utf-8")


def read_config(expected: type[Config], path: Path) -> Config:
    """Read a file of ``write_config`` as the dataclass ``expected``.

    Raise ValueError, one line with path and field, if the content does not fit; OSError if it is unreadable.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as fault:
        raise ValueError(f"{path}: not JSON: {fault}") from None
    try:
        return from_document(expected, document)
    except ValueError as fault:
        raise ValueError(f"{path}: {fault}") from None


def from_document(expected: type[Config], document: object) -> Config:
    """Build the dataclass ``expected`` from parsed JSON. Raise ValueError, one line with the field."""
    built = _built(expected, document, "")
    assert isinstance(built, expected)
    return built


def _built(expected: Any, value: object, where: str) -> Any:
    """Build a value of the annotated type ``expected`` from parsed JSON. Raise ValueError naming ``where``."""
    if isinstance(expected, UnionType):
        return _built_one_of(get_args(expected), value, where)
    if is_dataclass(expected) and isinstance(expected, type):
        return _built_dataclass(expected, value, where)
    if get_origin(expected) is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{where}: expected a list, found {value!r}")
        return tuple(
            _built(element, entry, f"{where}.{index}")
            for index, (element, entry) in enumerate(zip(_elements(expected, len(value), where), value, strict=True))
        )
    if isinstance(expected, type) and issubclass(expected, StrEnum) and isinstance(value, str):
        return _built_choice(expected, value, where)
    kind = get_origin(expected) or expected
    if type(value) is not kind:
        raise ValueError(f"{where}: expected {kind.__name__}, found {value!r}")
    return value


def _elements(expected: Any, count: int, where: str) -> tuple[Any, ...]:
    """Return the annotation of each of ``count`` elements. Raise ValueError naming ``where`` if the count is wrong."""
    elements = get_args(expected)
    if elements[-1] is Ellipsis:
        return (elements[0],) * count
    if len(elements) != count:
        raise ValueError(f"{where}: expected {len(elements)} values, found {count}")
    return elements


def _built_one_of(choices: tuple[Any, ...], value: object, where: str) -> Any:
    if value is None and NoneType in choices:
        return None
    fitting = [choice for choice in choices if (get_origin(choice) is tuple) == isinstance(value, list)]
    fitting = [choice for choice in fitting if choice is not NoneType]
    if not fitting:
        raise ValueError(f"{where}: {value!r} does not belong here")
    return _built(fitting[0], value, where)


def _built_choice(expected: type[StrEnum], value: str, where: str) -> StrEnum:
    try:
        return expected(value)
    except ValueError:
        raise ValueError(f"{where}: {value!r} is none of {', '.join(expected)}") from None


def _built_dataclass(expected: type, value: object, where: str) -> Any:
    prefix = f"{where}." if where else ""
    if not isinstance(value, dict):
        raise ValueError(f"{where or 'the configuration'}: expected an object, found {value!r}")
    annotations = get_type_hints(expected)
    known = [entry.name for entry in fields(expected)]
    if unknown := sorted(value.keys() - set(known)):
        raise ValueError(f"{prefix}{unknown[0]}: unknown field")
    try:
        return expected(**{name: _built(annotations[name], entry, prefix + name) for name, entry in value.items()})
    except TypeError as missing:
        raise ValueError(f"{where or 'the configuration'}: {missing}") from None
    except ValueError as fault:
        text = str(fault)
        raise ValueError(text if text.startswith(prefix) else prefix + text) from None
