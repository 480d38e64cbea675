"""Parse paths into an experiment, such as ``topology.wan.latency``, and set values at them.

``--set`` and ``sweep`` both name a value by its path. A path is checked against the models of the experiment file. A
step is a field's name or, in a list, an index from 0. After ``sweep`` the rest of a path is one key, because the keys
of a sweep are paths themselves. Setting a value returns a changed copy.
"""

from collections.abc import Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, JsonValue

from ground.nearest_name import did_you_mean
from ground.shown_text import one_line, shortened, shown
from ground.strict_model import InputError, prefixed
from ground.yaml_document import parse_yaml
from runner.experiment.experiment_spec import ExperimentSpec

Steps = tuple[str, ...]


def parse_path(text: str) -> Steps:
    """Split a path into its steps and check that the models have such a field.

    Raise InputError for an unknown step. The message names the nearest known field.
    """
    head, _, rest = text.partition(".")
    steps = (head, rest) if head == "sweep" and rest else tuple(text.split("."))
    annotations: list[Any] = [ExperimentSpec]
    for position, step in enumerate(steps):
        below = [found for annotation in annotations for found in _below(annotation, step)]
        if not below:
            where = ".".join(steps[:position])
            raise InputError(_unknown(step, where, annotations))
        annotations = below
    return steps


def _alternatives(annotation: Any) -> list[Any]:
    """Return the plain types that an annotation allows. Unions and ``Annotated`` are resolved."""
    arguments = get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        return _alternatives(arguments[0])
    if arguments and get_origin(annotation) not in (tuple, list, dict):
        return [kind for argument in arguments for kind in _alternatives(argument)]
    return [annotation]


def _below(annotation: Any, step: str) -> list[Any]:
    found: list[Any] = []
    for kind in [JsonValue] if annotation is JsonValue else _alternatives(annotation):
        if kind is JsonValue:
            found.append(JsonValue)
        elif get_origin(kind) is dict:
            found.append(get_args(kind)[1])
        elif get_origin(kind) in (tuple, list):
            if _is_index(step):
                found.append(get_args(kind)[0])
        elif isinstance(kind, type) and issubclass(kind, BaseModel) and step in kind.model_fields:
            found.append(kind.model_fields[step].annotation)
    return found


def _unknown(step: str, where: str, annotations: list[Any]) -> str:
    kinds = [kind for annotation in annotations for kind in _alternatives(annotation)]
    names = sorted(
        {name for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel) for name in kind.model_fields}
    )
    inside = f" in {where}" if where else ""
    if names:
        known = f"known here: {', '.join(names)}"
        return f"no field {step!r}{inside}, {did_you_mean(step, names, known)}"
    if any(get_origin(kind) in (tuple, list) for kind in kinds):
        return f"{where} is a list, {step!r} is no index: count from 0"
    return f"{where} is a single value, it has no field {step!r}: set {where} itself"


def _is_index(step: str) -> bool:
    return step.isascii() and step.isdecimal()


def with_value(document: Any, path: Steps, value: Any) -> Any:
    """Return a copy of ``document`` with ``value`` at ``path``.

    Absent sections are created, absent list entries are not. Raise InputError for an index beyond the end of a list and
    for a step below a single value.
    """
    return _with_value(document, path, value, ())


def _with_value(document: Any, path: Steps, value: Any, above: Steps) -> Any:
    if not path:
        return value
    step, where = path[0], ".".join(above)
    below = (*above, step)
    if isinstance(document, list):
        if not _is_index(step):
            raise InputError(f"{where} is a list here, {step!r} is no index: count from 0")
        if len(step) > 9 or int(step) >= len(document):
            raise InputError(f"{where} has {_entries(len(document))} here, there is no {step}")
        position = int(step)
        changed = _with_value(document[position], path[1:], value, below)
        return [*document[:position], changed, *document[position + 1 :]]
    if document is None and _is_index(step):
        raise InputError(f"{where} has no entries here, there is no {step}: set {where} as a whole")
    if document is None:
        document = {}
    if not isinstance(document, Mapping):
        raise InputError(f"{where} is the single value {shown(document)} here: set {where} itself")
    return {**document, step: _with_value(document.get(step), path[1:], value, below)}


def _entries(count: int) -> str:
    return f"{count} entr{'y' if count == 1 else 'ies'}"


def override_source(override: str) -> str:
    """Return how error messages name a ``--set path=value``. A long path or value is shortened."""
    path, equals, value = override.partition("=")
    return f"--set {one_line(shortened(path) + equals + shortened(value))}"


def with_override(document: Any, override: str) -> Any:
    """Return the document with one ``path=value`` of ``--set`` applied. The value is read as YAML.

    Raise InputError, one line that starts with ``--set``.
    """
    path, equals, value = override.partition("=")
    with prefixed(f"{override_source(override)}: "):
        if not equals:
            raise InputError("no value given, write it like topology.wan.latency=10ms")
        return with_value(document, parse_path(path.strip()), parse_yaml(value))
