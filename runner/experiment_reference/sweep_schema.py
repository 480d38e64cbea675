"""Make the schema of the section ``sweep``: which paths there are, and which values each of them takes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from runner.experiment.sweep import ONE_FOR_THE_RUN

_ENTRY = r"\.[^.]+"
"""An entry of a list: its index from 0, or what else names it."""

Schema = Mapping[str, Any]


def sweep_schema(root: Schema, definitions: Mapping[str, Schema]) -> dict[str, Any]:
    """Return the ``properties`` and ``patternProperties`` of ``sweep``, from the schema of the file.

    A path through sections alone is a property, so that an editor completes it. A path through a list or into options
    is a pattern.
    """
    values: dict[str, list[Schema]] = {}
    for path, value in _paths("", "#", root, definitions):
        values.setdefault(path, []).append(value)
    lists = {
        path: {"type": "array", "minItems": 1, "items": found[0] if len(found) == 1 else {"anyOf": found}}
        for path, found in values.items()
    }
    return {
        "properties": {path.replace("\\", ""): each for path, each in lists.items() if _is_plain(path)},
        "patternProperties": {f"^{path}$": each for path, each in lists.items() if not _is_plain(path)},
        "additionalProperties": False,
    }


def _is_plain(path: str) -> bool:
    return _ENTRY not in path and ".+" not in path


def _paths(above: str, at: str, section: Schema, definitions: Mapping[str, Schema]) -> Iterator[tuple[str, Schema]]:
    """Yield every path below a section as a pattern, with the schema of what stands there."""
    for name, field in section["properties"].items():
        if (not above and name in ONE_FOR_THE_RUN - {"variants"}) or (
            above == f"variants{_ENTRY}\\." and name == "name"
        ):
            continue
        path = above + re.escape(name)
        reference = f"{at}/properties/{name}"
        if name != "variants":
            yield path, {"$ref": reference}
        yield from _below(path, reference, field, definitions)


def _below(path: str, at: str, value: Schema, definitions: Mapping[str, Schema]) -> Iterator[tuple[str, Schema]]:
    if "$ref" in value:
        where = value["$ref"]
        yield from _paths(f"{path}\\.", where, definitions[where.rpartition("/")[2]], definitions)
    elif value.get("type") == "array":
        entry = path + _ENTRY
        if path != "variants":
            yield entry, {"$ref": f"{at}/items"}
        yield from _below(entry, f"{at}/items", value["items"], definitions)
    elif value.get("type") == "object":
        yield f"{path}\\..+", {}
    for position, branch in enumerate(value.get("anyOf", ())):
        yield from _below(path, f"{at}/anyOf/{position}", branch, definitions)
