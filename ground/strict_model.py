"""Validate what users write: models are frozen and refuse unknown fields; a mistake is one line with its remedy."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Self, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, PlainSerializer, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from wanbed.ground.errors import InputError, did_you_mean, nearest_name, shortened, shown
from wanbed.ground.exclusions import Exclusion, first_refusal

MOST_MISTAKES = 5
"""The most mistakes of one document that an error names. The others are counted."""


class StrictModel(BaseModel):
    """A frozen model that refuses unknown fields. Defaults are in the program's own units and are not parsed.

    A field whose name is no name in Python, like ``for``, has it as its ``alias``, in documents too.
    A field that is added to a model later is left out of documents while it has its default (``exclude_if``), so that
    hashes of configurations stay what they were.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, serialize_by_alias=True, defer_build=True
    )

    def exclusions(self) -> Iterable[Exclusion]:
        """Declare which fields of the model do not go with others of it. They are checked before anything else."""
        return ()

    @model_validator(mode="after")
    def _check_exclusions(self) -> Self:
        if (refusal := first_refusal(self.exclusions(), self)) is not None:
            raise ValueError(refusal)
        return self


def is_none(value: object) -> bool:
    """Return whether the value is None: 0 and an empty text are values."""
    return value is None


Model = TypeVar("Model", bound=StrictModel)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]


def _fields_as_written(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _known_fields(model: type[BaseModel], path: tuple[int | str, ...]) -> dict[str, FieldInfo]:
    """Return the fields by name at ``path`` below ``model``, of every model that a union allows there."""
    reached = [model]
    for step in path:
        if isinstance(step, str):
            fields = [field for found in reached if (field := _fields_as_written(found).get(step)) is not None]
            if fields:
                reached = [inner for field in fields for inner in _models_in(field.annotation)]
    return {name: field for found in reached for name, field in _fields_as_written(found).items()}


def _known_names(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    return sorted(_known_fields(model, path))


def _metadata_of_entries(annotation: Any, steps: tuple[int | str, ...]) -> list[Any]:
    """Return the metadata of the values at ``steps``, positions and keys, inside a list or mapping of that type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner, *metadata = arguments
        return _metadata_of_entries(inner, steps) if steps else metadata
    if origin in {Union, UnionType}:
        return [each for member in arguments for each in _metadata_of_entries(member, steps)]
    if not steps or not isinstance(origin, type):
        return []
    step, *further = steps
    if issubclass(origin, Mapping):
        entries = arguments[1:]
    elif issubclass(origin, tuple) and Ellipsis not in arguments and isinstance(step, int):
        entries = arguments[step : step + 1]
    else:
        entries = arguments[:1]
    return [each for entry in entries for each in _metadata_of_entries(entry, tuple(further))]


def _metadata(model: type[BaseModel], path: tuple[int | str, ...]) -> list[Any]:
    """Return the metadata of the value at ``path``, which is a field's or that of an entry of its list or mapping."""
    for position in reversed(range(len(path))):
        field = _known_fields(model, path[:position]).get(str(path[position]))
        if field is not None:
            further = path[position + 1 :]
            return _metadata_of_entries(field.annotation, further) if further else field.metadata
    return []


def _number_text(metadata: Sequence[Any], number: object) -> str:
    """Return a number as it is written in a document: with its unit, where its metadata has one."""
    for each in metadata:
        if isinstance(each, PlainSerializer) and each.return_type is str:
            if isinstance(number, str):
                return " ".join(number.split())
            return cast("Callable[[object], str]", each.func)(number)
    return f"{number:g}" if isinstance(number, float) else shown(number)


def _with_short_lists(faults: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Return the faults with one for each list of fixed length that is too short, in place of one for each entry."""
    together: dict[tuple[int | str, ...], ErrorDetails] = {}
    for fault in faults:
        *above, last = fault["loc"] or ("",)
        if fault["type"] == "missing" and isinstance(last, int):
            ctx = {"min_length": last + 1}
            together[(*above, "")] = {**fault, "type": "too_short", "loc": tuple(above), "ctx": ctx}
        else:
            together[(*fault["loc"], fault["type"])] = fault
    return list(together.values())


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
    "greater_than": "{given} is not above {gt}: give more",
    "greater_than_equal": "{given} is below {ge}: give {ge} at least",
    "less_than": "{given} is not below {lt}: give less",
    "less_than_equal": "{given} is above {le}: give {le} at most",
}
_BOUND_OF_A_LIST = {"too_long": ("at most", "give fewer"), "too_short": ("at least", "give more")}


def _fault_text(model: type[BaseModel], error: ErrorDetails) -> str:
    path = error["loc"]
    if error["type"] == "extra_forbidden":
        names = _known_names(model, path[:-1])
        known = f"known here: {', '.join(names)}"
        return f"unknown field, {did_you_mean(str(path[-1]), names, known)}"
    if error["type"] == "missing":
        return "this field is required"
    if error["type"] == "model_type":
        return "this is a section: give its fields, like {name: value}"
    if error["type"] == "string_type" and isinstance(error["input"], (bool, int, float)):
        return f"{shown(error['input'])} is no text: put it in quotes"
    if error["type"] in _BOUND_OF_A_LIST:
        bound, remedy = _BOUND_OF_A_LIST[error["type"]]
        limits = error.get("ctx", {})
        given, limit = len(error["input"]), limits.get("max_length", limits.get("min_length"))
        return f"a list of {given} {'entry' if given == 1 else 'entries'}, {bound} {limit}: {remedy}"
    return _fault_of_value(model, error)


def _fault_of_value(model: type[BaseModel], error: ErrorDetails) -> str:
    given, limits = shown(error["input"]), error.get("ctx", {})
    if error["type"] == "literal_error":
        expected = limits["expected"]
        remedy = did_you_mean(str(error["input"]), _NAME_IN_QUOTES.findall(expected), f"give {expected}")
        return f"{given} is not known: {remedy}"
    if error["type"] in _WHAT_IT_IS_NOT:
        return f"{given} is not {_WHAT_IT_IS_NOT[error['type']]}"
    if error["type"] in _BOUND_OF_A_NUMBER:
        metadata = _metadata(model, error["loc"])
        numbers = {"given": error["input"], **limits}
        texts = {name: _number_text(metadata, number) for name, number in numbers.items()}
        return _BOUND_OF_A_NUMBER[error["type"]].format(**texts)
    message = error["msg"].removeprefix("Value error, ").replace("\n", " ")
    return message[:1].lower() + message[1:]


def _mistake(model: type[BaseModel], error: ErrorDetails, place: Callable[[str], str]) -> str:
    """Return one line, place and fault. Of a section that refuses a field of its own, the place is that field."""
    where, text = ".".join(shortened(str(step)) for step in error["loc"]), _fault_text(model, error)
    field, colon, fault = text.partition(": ")
    if error["type"] == "value_error" and colon and field.partition(".")[0] in _known_fields(model, error["loc"]):
        where, text = f"{where}.{field}" if where else field, fault
    return f"{place(where)}: {text}"


def parse_model(model: type[Model], document: object, source: str) -> Model:
    """Validate ``document`` as ``model``.

    Raise InputError with one line, ``source: field: remedy``, for each of the first ``MOST_MISTAKES`` mistakes. Unknown
    fields come before others.
    """
    return _parsed(model, document, source, lambda where: f"{source}: {where or 'the document'}")


def parse_section(model: type[Model], section: object, path: str) -> Model:
    """Validate the section at ``path`` of a document, as ``parse_model`` does; a mistake is ``path.field: remedy``."""
    return _parsed(model, section, path, lambda where: f"{path}.{where}" if where else path)


def _parsed(model: type[Model], document: object, source: str, place: Callable[[str], str]) -> Model:
    try:
        return model.model_validate(document)
    except ValidationError as refusal:
        faults = _worth_reporting(model, _with_short_lists(refusal.errors(include_url=False)))
        mistakes = [_mistake(model, fault, place) for fault in faults[:MOST_MISTAKES]]
        if len(faults) > MOST_MISTAKES:
            mistakes.append(f"{source}: and {len(faults) - MOST_MISTAKES} more, mend these first")
        raise InputError(*mistakes) from None
