"""Validate what users write: models are frozen and refuse unknown fields; an error is one line with its remedy."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from ground.nearest_name import did_you_mean


class InputError(Exception):
    """The user's input is unusable; the message is one line naming place, field and remedy. Exit status 2."""


class LocatedError(InputError):
    """The message names a place outside the file that is being read: another file's line, an option. Never prefixed."""


@contextmanager
def prefixed(prefix: str) -> Iterator[None]:
    """Put ``prefix`` in front of the message of any InputError that is raised inside, except a LocatedError.

    A check names the field only. The code that knows the file or the sweep point puts it in front, once, in this way.
    """
    try:
        yield
    except LocatedError:
        raise
    except InputError as refusal:
        refusal.args = (f"{prefix}{refusal}",)
        raise


class StrictModel(BaseModel):
    """A frozen model that refuses unknown fields. Defaults are in the program's own units and are not parsed."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


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


def _one_line(model: type[BaseModel], error: ErrorDetails) -> str:
    path = error["loc"]
    where = ".".join(str(step) for step in path) or "the document"
    if error["type"] == "extra_forbidden":
        names = _known_names(model, path[:-1])
        known = f"known here: {', '.join(names)}"
        return f"{where}: unknown field, {did_you_mean(str(path[-1]), names, known)}"
    if error["type"] == "missing":
        return f"{where}: this field is required"
    message = error["msg"].removeprefix("Value error, ").replace("\n", " ").replace("valid tuple", "valid list")
    return f"{where}: {message[:1].lower() + message[1:]}"


def parse_model(model: type[Model], document: object, source: str) -> Model:
    """Validate ``document`` as ``model``.

    Raise InputError with one line, ``source: field: remedy``, for the first fault; unknown fields come before others.
    """
    try:
        return model.model_validate(document)
    except ValidationError as refusal:
        faults = refusal.errors(include_url=False)
        unknown = [fault for fault in faults if fault["type"] == "extra_forbidden"]
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise InputError(f"{source}: {_one_line(model, (unknown or faults)[0])}{more}") from None
