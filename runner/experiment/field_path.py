"""Parse paths into an experiment, such as ``topology.wan.latency``, and set values at them.

``--set`` and ``sweep`` both name a value by its path. A path is checked against the models of the experiment file. A
step is a field's name or, in a list, an index from 0 or the entry's name in brackets: ``datacenters[east]`` and
``variants[atlas]`` are the entry of that name, ``links[east, west]`` is the link in both directions,
``links[east to west]`` one direction of it. A link without an entry gets one, because a network preset or ``wan``
describes it all the same. After ``sweep`` the rest of a path is one key, because the keys of a sweep are paths
themselves. Setting a value returns a changed copy.
"""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel, JsonValue

from wanbed.ground.errors import InputError, did_you_mean, prefixed, shortened, shown
from wanbed.ground.yaml_document import parse_yaml
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.variant_spec import VariantSpec
from wanbed.testbed.network.topology_spec import DatacenterSpec, LinkSpec

Steps = tuple[str, ...]
_TO = " to "
_BY_NAME: tuple[type[BaseModel], ...] = (DatacenterSpec, VariantSpec)

_LINKS = ("topology", "links")

_STEP = re.compile(r"(?P<field>[^.\[\]]+)(\[(?P<name>[^\[\]]*)\])?(\.|$)")

_PATH = re.compile(r"(?:[^\[\]=]|\[[^\[\]]*\])*")
"""The path before the first ``=`` that is outside brackets."""


def parse_path(text: str) -> Steps:
    """Split a path into its steps and check that the models have such a field.

    Raise InputError for an unknown step. The message names the nearest known field.
    """
    head, _, rest = text.partition(".")
    steps = (head, rest) if head == "sweep" and rest else _split(text)
    annotations: list[Any] = [ExperimentSpec]
    for position, step in enumerate(steps):
        below = [found for annotation in annotations for found in _below(annotation, step)]
        if not below:
            where = _text(steps[:position])
            raise InputError(_unknown(step, where, annotations))
        annotations = below
    return steps


def _split(text: str) -> Steps:
    """Split a path at its dots. A name in brackets is a step of its own, and may contain dots."""
    steps: list[str] = []
    for match in _STEP.finditer(text):
        field, name = match.group("field", "name")
        steps += [field] if name is None else [field, entry_step(name)]
    if not steps or "".join(match.group() for match in _STEP.finditer(text)) != text or text.endswith("."):
        if re.search(r"\w\[.*\]", text):
            raise InputError(
                f"{shown(text)}: a name with a bracket cannot be written in a path: give the entry's index, like "
                "variants.0.schedule"
            )
        steps = text.split(".")
    return tuple(steps)


def _text(steps: Steps) -> str:
    return ".".join(steps).replace(".[", "[")


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
            if _is_index(step) or (is_entry_step(step) and can_be_named(get_args(kind)[0])):
                found.append(get_args(kind)[0])
        elif isinstance(kind, type) and issubclass(kind, BaseModel) and step in (fields := _fields(kind)):
            found.append(fields[step])
    return found


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """Return the annotation of each field by its name in the file."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _unknown(step: str, where: str, annotations: list[Any]) -> str:
    kinds = [kind for annotation in annotations for kind in _alternatives(annotation)]
    names = sorted(
        {name for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel) for name in _fields(kind)}
    )
    inside = f" in {where}" if where else ""
    if names:
        known = f"known here: {', '.join(names)}"
        return f"no field {shown(step)}{inside}, {did_you_mean(step, names, known)}"
    if any(get_origin(kind) in (tuple, list) for kind in kinds):
        return f"{where} is a list, {shown(step)} is no index: count from 0, as in {where}.0"
    return f"{where} is a single value, it has no field {shown(step)}: set {where} itself"


def _is_index(step: str) -> bool:
    return step.isascii() and step.isdecimal()


def with_value(document: Any, path: Steps, value: Any) -> Any:
    """Return a copy of ``document`` with ``value`` at ``path``.

    Absent sections and links that are named are created, other list entries are not. Raise InputError for an index
    beyond the end of a list, for a name that no entry has, and for a step below a single value.
    """
    return _with_value(document, path, value, ())


def located(document: Any, path: Steps) -> Steps:
    """Return ``path`` with the index of each entry that it names, so that equal places have equal paths.

    A link that has no entry yet keeps its name. Raise InputError for a name that cannot be one of a link.
    """
    steps: list[str] = []
    for step in path:
        named = is_entry_step(step)
        position = position_of(step, document) if named and isinstance(document, list) else None
        if position is not None:
            steps.append(str(position))
        else:
            steps.append(str(new_link(step)) if named and tuple(steps) == _LINKS else step)
        try:
            document = document[steps[-1]] if isinstance(document, Mapping) else document[int(steps[-1])]
        except (LookupError, TypeError, ValueError):
            document = None
    return tuple(steps)


def _with_value(document: Any, path: Steps, value: Any, above: Steps) -> Any:
    if not path:
        return value
    step, where = path[0], _text(above)
    below = (*above, step)
    if is_entry_step(step) and (document is None or isinstance(document, list)):
        entries = document or []
        position = position_of(step, entries)
        if position is None and above != _LINKS:
            raise InputError(unknown_entry(where, step, entries))
        if above == _LINKS and len(path) == 1 and isinstance(value, Mapping):
            value = {**new_link(step), **value}
        document = entries if position is not None else [*entries, new_link(step)]
        step = str(len(entries) if position is None else position)
    if isinstance(document, list):
        if not _is_index(step):
            raise InputError(f"{where} is a list here, {shown(step)} is no index: count from 0, as in {where}.0")
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


def split_override(override: str) -> tuple[str, str, str]:
    """Split ``path=value`` at its ``=``, as ``str.partition`` does; one inside brackets belongs to a name."""
    match = _PATH.match(override)
    end = match.end() if match else 0
    if not override[end:].startswith("="):
        return override.partition("=")
    return override[:end], "=", override[end + 1 :]


def override_source(override: str) -> str:
    """Return how error messages name a ``--set path=value``. A long path or value is shortened."""
    path, equals, value = split_override(override)
    return f"--set {shortened(path) + equals + shortened(value)}"


def with_override(document: Any, override: str) -> Any:
    """Return the document with one ``path=value`` of ``--set`` applied. The value is read as YAML.

    Raise InputError, one line that starts with ``--set``.
    """
    path, equals, value = split_override(override)
    with prefixed(f"{override_source(override)}: "):
        if not equals:
            raise InputError("no value given, write it like topology.wan.latency=10ms")
        return with_value(document, parse_path(path.strip()), parse_yaml(value))


def entry_step(name: str) -> str:
    """Return the step of a path for what stands in brackets."""
    return f"[{name.strip()}]"


def is_entry_step(step: str) -> bool:
    """Return whether a step of a path names an entry."""
    return step.startswith("[") and step.endswith("]")


def can_be_named(kind: Any) -> bool:
    """Return whether the entries of a list of ``kind`` have names, or ends."""
    return kind in (*_BY_NAME, LinkSpec)


def position_of(step: str, entries: Sequence[Any]) -> int | None:
    """Return the position of the entry that ``step`` names, None if there is none."""
    return next((position for position, entry in enumerate(entries) if _is_named(entry, step)), None)


def new_link(step: str) -> dict[str, Any]:
    """Return an entry of a link with its ends alone, the same however they are written.

    Raise InputError if ``step`` names no link.
    """
    source, to, destination = step[1:-1].partition(_TO)
    if to:
        return {"from": source.strip(), "to": destination.strip()}
    ends = sorted(end.strip() for end in step[1:-1].split(","))
    if len(ends) != 2:
        raise InputError(
            f"{shown(step[1:-1])} names no link, write it like [east, west], or [east to west] for one direction"
        )
    return {"between": ends}


def unknown_entry(where: str, step: str, entries: Sequence[Any]) -> str:
    """Return the error for a name that no entry of the list at ``where`` has."""
    names = [str(entry["name"]) for entry in entries if isinstance(entry, Mapping) and "name" in entry]
    near = get_close_matches(step[1:-1], names, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(names) or 'none'}"
    return f"{where} has no entry {shown(step[1:-1])} here, {remedy}"


def _is_named(entry: Any, step: str) -> bool:
    if not isinstance(entry, Mapping):
        return False
    if "name" in entry:
        return entry_step(str(entry["name"])) == step
    named, between = new_link(step), entry.get("between")
    if isinstance(between, list | tuple):
        return sorted(map(str, between)) == named.get("between")
    return {"from", "to"} <= named.keys() and all(str(entry.get(end)) == named[end] for end in ("from", "to"))
