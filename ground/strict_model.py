"""Validate what users write: models are frozen and refuse unknown fields; a mistake is one line with its remedy."""

import re
from collections.abc import Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from wanbed.ground.errors import InputError, did_you_mean, nearest_name, shortened, shown

MOST_MISTAKES = 5
"""The most mistakes of one document that an error names. The others are counted."""


class StrictModel(BaseModel):
    """A frozen model that refuses unknown fields. Defaults are in the program's own units and are not parsed.

    A field that is added to a model later is left out of documents while it has its default (``exclude_if``), so that
    hashes of configurations stay what they were.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def is_none(value: object) -> bool:
    """Return whether the value is None: 0 and an empty text are values."""
    return value is None


Model = TypeVar("Model", bound=StrictModel)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]


def _known_names(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Return the field names at ``path`` below ``model``, of every model that a union allows there."""
    reached = [model]
    for step in path:
        if isinstance(step, str):
            annotations = [found.model_fields[step].annotation for found in reached if step in found.model_fields]
            if annotations:
                reached = [inner for annotation in annotations for inner in _models_in(annotation)]
    return sorted({field.alias or name for found in reached for name, field in found.model_fields.items()})


def _worth_reporting(model: type[BaseModel], faults: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Return the faults, unknown fields first, without those that only follow from another one.

    A section is invalid if anything in it is. A field is missing if its name is misspelt.
    """
    unknown = [fault for fault in faults if fault["type"] == "extra_forbidden"]
    meant = {
        (*path[:-1], nearest_name(str(path[-1]), _known_names(model, path[:-1])))
        for path in (fault["loc"] for fault in unknown)
    }
    paths = [fault["loc"] for fault in faults]
    others = [
        fault
        for fault in faults
        if fault["type"] != "extra_forbidden"
        and not (fault["type"] == "missing" and fault["loc"] in meant)
        and not any(len(path) > len(fault["loc"]) and path[: len(fault["loc"])] == fault["loc"] for path in paths)
    ]
    return [*unknown, *others]


_NAME_IN_QUOTES = re.compile(r"'([^']*)'")
_WHAT_IT_IS_NOT = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    "dict_type": "a mapping, like {name: value}",
    "string_type": "a text",
}
_BOUND_OF_A_NUMBER = {
    "greater_than": "{given} is not above {gt}",
    "greater_than_equal": "{given} is below {ge}",
    "less_than": "{given} is not below {lt}",
    "less_than_equal": "{given} is above {le}",
}
_BOUND_OF_A_LIST = {"too_long": ("at most", "give fewer"), "too_short": ("at least", "give more")}


def _one_line(model: type[BaseModel], error: ErrorDetails) -> str:
    path = error["loc"]
    where = ".".join(shortened(str(step)) for step in path) or "the document"
    if error["type"] == "extra_forbidden":
        names = _known_names(model, path[:-1])
        known = f"known here: {', '.join(names)}"
        return f"{where}: unknown field, {did_you_mean(str(path[-1]), names, known)}"
    if error["type"] == "missing":
        return f"{where}: this field is required"
    if error["type"] == "model_type":
        return f"{where}: this is a section: give its fields, like {{name: value}}"
    if error["type"] == "string_type" and isinstance(error["input"], (bool, int, float)):
        return f"{where}: {shown(error['input'])} is no text: put it in quotes"
    if error["type"] in _BOUND_OF_A_LIST:
        bound, remedy = _BOUND_OF_A_LIST[error["type"]]
        limits = error.get("ctx", {})
        given, limit = len(error["input"]), limits.get("max_length", limits.get("min_length"))
        return f"{where}: a list of {given} {'entry' if given == 1 else 'entries'}, {bound} {limit}: {remedy}"
    return f"{where}: {_fault_of_value(error)}"


def _fault_of_value(error: ErrorDetails) -> str:
    given, limits = shown(error["input"]), error.get("ctx", {})
    if error["type"] == "literal_error":
        expected = limits["expected"]
        remedy = did_you_mean(str(error["input"]), _NAME_IN_QUOTES.findall(expected), f"give {expected}")
        return f"{given} is not known: {remedy}"
    if error["type"] in _WHAT_IT_IS_NOT:
        return f"{given} is not {_WHAT_IT_IS_NOT[error['type']]}"
    if error["type"] in _BOUND_OF_A_NUMBER:
        shortest = {name: f"{bound:g}" if isinstance(bound, float) else bound for name, bound in limits.items()}
        return _BOUND_OF_A_NUMBER[error["type"]].format(given=given, **shortest)
    message = error["msg"].removeprefix("Value error, ").replace("\n", " ")
    return message[:1].lower() + message[1:]


def parse_model(model: type[Model], document: object, source: str) -> Model:
    """Validate ``document`` as ``model``.

    Raise InputError with one line, ``source: field: remedy``, for each of the first ``MOST_MISTAKES`` mistakes. Unknown
    fields come before others.
    """
    try:
        return model.model_validate(document)
    except ValidationError as refusal:
        faults = _worth_reporting(model, refusal.errors(include_url=False))
        mistakes = [f"{source}: {_one_line(model, fault)}" for fault in faults[:MOST_MISTAKES]]
        if len(faults) > MOST_MISTAKES:
            mistakes.append(f"{source}: and {len(faults) - MOST_MISTAKES} more, mend these first")
        raise InputError(*mistakes) from None
