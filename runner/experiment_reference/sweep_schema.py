"""Make the schema of the section ``sweep``: which paths there are, and which values each of them takes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from wanbed.runner.experiment.sweep import ONE_FOR_THE_RUN

_ENTRY = r"(\.[0-9]+|\[[^\[\]]+\])"
"""An entry of a list: its index from 0, or its name in brackets."""

Schema = Mapping[str, Any]


def sweep_schema(root: Schema, definitions: Mapping[str, Schema]) -> dict[str, Any]:
    """Return the ``properties`` and ``patternProperties`` of ``sweep``, from the schema of the file.

    A path through sections alone is a property, so that an editor completes it. A path through a list or into options
    is a pattern.
    """
    values: dict[str, list[Schema]] = {}
    descriptions: dict[str, str] = {}
    for path, value, description in _paths("", "#", root, definitions):
        values.setdefault(path, []).append(value)
        descriptions[path] = description
    lists = {
        path: {
            "description": descriptions[path],
            "type": "array",
            "minItems": 1,
            "items": found[0] if len(found) == 1 else {"anyOf": found},
        }
        for path, found in values.items()
    }
    return {
        "properties": {path.replace("\\", ""): each for path, each in lists.items() if _is_plain(path)},
        "patternProperties": {f"^{path}$": each for path, each in lists.items() if not _is_plain(path)},
        "additionalProperties": False,
    }


def _is_plain(path: str) -> bool:
    return _ENTRY not in path and ".+" not in path


def _paths(
    above: str, at: str, section: Schema, definitions: Mapping[str, Schema]
) -> Iterator[tuple[str, Schema, str]]:
    """Yield every path below a section as a pattern, with the schema and the description of what stands there."""
    for name, field in section["properties"].items():
        if (not above and name in ONE_FOR_THE_RUN - {"variants"}) or (
            above == f"variants{_ENTRY}\\." and name == "name"
        ):
            continue
        path = above + re.escape(name)
        value = {"$ref": f"{at}/properties/{name}"}
        if name != "variants":
            yield path, value, field["description"]
        yield from _below(path, value, field, field["description"], definitions)


def _below(
    path: str, value: Schema, field: Schema, description: str, definitions: Mapping[str, Schema]
) -> Iterator[tuple[str, Schema, str]]:
    """Yield every path below a field. ``value`` refers to its schema ``field``."""
    if "$ref" in field:
        where = field["$ref"]
        yield from _paths(f"{path}\\.", where, definitions[where.rpartition("/")[2]], definitions)
    elif field.get("type") == "array":
        entry = {"$ref": f"{value['$ref']}/items"}
        if path != "variants":
            yield path + _ENTRY, entry, description
        yield from _below(path + _ENTRY, entry, field["items"], description, definitions)
    elif field.get("type") == "object":
        yield f"{path}\\..+", {}, description
    for position, branch in enumerate(field.get("anyOf", ())):
        yield from _below(path, {"$ref": f"{value['$ref']}/anyOf/{position}"}, branch, description, definitions)
