"""Make the JSON schema of the experiment file, by which an editor completes and checks.

Every file that is read without an error agrees with the schema. It does not check what depends on several fields or on
what is installed. It is draft 7, which every editor knows.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, NoDefault
from pydantic_core import CoreSchema, SchemaSerializer, core_schema

from wanbed.netem_profiles.preset import preset_names
from wanbed.runner.companions.prefill.spec import DRAWN, MEASURED
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.sweep import ONE_FOR_THE_RUN
from wanbed.runner.experiment.variant_spec import other_schedules
from wanbed.workloads.bubbletea.profile_files import prefill_profile_names
from wanbed.workloads.compute.backends.registry import backend_names
from wanbed.workloads.profiles.catalogue import profile_names
from wanbed.workloads.schedules.registry import schedule_names

DRAFT = "http://json-schema.org/draft-07/schema#"

DEFINITIONS = "definitions"
_ENTRY = r"(\.[0-9]+|\[[^\[\]]+\])"
"""An entry of a list: its index from 0, or its name in brackets."""

Schema = Mapping[str, Any]

_KNOWN: dict[tuple[str, str], Callable[[], Sequence[str]]] = {
    ("TopologySpec", "profile"): preset_names,
    ("ComputeSpec", "kind"): backend_names,
    ("ComputeSpec", "profile"): profile_names,
    ("VariantSpec", "schedule"): lambda: (*schedule_names(), *other_schedules()),
    ("PrefillSpec", "trace"): lambda: DRAWN,
    ("PrefillSpec", "profile"): lambda: (*prefill_profile_names(), MEASURED),
}
"""The names that an editor offers for a field which also takes others: a path, or a name of another package."""


class _WrittenSchema(GenerateJsonSchema):
    """Make a schema of what is written: defaults with their units, fields in their order, no titles."""

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        return value

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        described = self.generate_inner(schema["schema"])
        default = self.get_default_value(schema)
        if default is not NoDefault and not isinstance(default, tuple):
            written = _written_default(default, schema["schema"])
            if written is not None:
                described["default"] = written
        return described

    def tuple_schema(self, schema: core_schema.TupleSchema) -> JsonSchemaValue:
        entries = [self.generate_inner(entry) for entry in schema["items_schema"]]
        if "variadic_item_index" in schema or any(entry != entries[0] for entry in entries):
            return super().tuple_schema(schema)
        return {"type": "array", "items": entries[0], "minItems": len(entries), "maxItems": len(entries)}


def _written_default(default: object, field: CoreSchema) -> Any:
    """Return a default as a file has it, None for a section and where there is none."""
    if default is None and field["type"] == "nullable":
        return None
    if isinstance(default, BaseModel):
        named = default.model_dump(mode="json")
        return named if isinstance(named, str) else None
    if default is None and field["type"] == "nullable":
        return None
    return SchemaSerializer(field).to_python(default, mode="json")


def experiment_schema() -> dict[str, Any]:
    """Return the JSON schema of the experiment file."""
    schema = ExperimentSpec.model_json_schema(
        ref_template=f"#/{DEFINITIONS}/{{model}}", schema_generator=_WrittenSchema, union_format="any_of"
    )
    definitions = schema["$defs"]
    words = {name: definitions.pop(name)["enum"] for name in list(definitions) if "enum" in definitions[name]}
    schema = _with_words(schema, words)
    definitions = schema.pop("$defs")
    for (section, name), names in _KNOWN.items():
        fields = definitions[section]["properties"]
        fields[name] = _with_names(fields[name], list(map(str, names())))
    definitions["VariantSpec"]["anyOf"] = [{"required": ["schedule"]}, {"required": ["program"]}]
    fields = schema["properties"]
    fields["topology"] = {
        **{key: value for key, value in fields["topology"].items() if key != "$ref"},
        "anyOf": [{"$ref": fields["topology"]["$ref"]}, {"title": "path", "type": "string"}],
    }
    for section in (schema, *definitions.values()):
        section.pop("title", None)
        if "description" in section:
            section["description"] = _as_markdown(section["description"])
    for section in (schema, *definitions.values()):
        for field in section.get("properties", {}).values():
            if "description" not in field:
                # Pydantic leaves out what the section that the field refers to says in the same words.
                field["description"] = definitions[field["$ref"].rpartition("/")[2]]["description"]
    fields["sweep"] |= _sweep_schema(schema, definitions)
    return {"$schema": DRAFT, **schema, DEFINITIONS: definitions}


def schema_text() -> str:
    """Return the schema as the text of a file."""
    return json.dumps(experiment_schema(), indent=2, ensure_ascii=False) + "\n"


def _with_words(value: Any, words: Mapping[str, list[str]]) -> Any:
    """Return a schema with the words of an enumeration in place of each reference to it."""
    if isinstance(value, list):
        return [_with_words(each, words) for each in value]
    if not isinstance(value, dict):
        return value
    name = str(value.get("$ref")).rpartition("/")[2]
    if name in words:
        return {**{key: each for key, each in value.items() if key != "$ref"}, "enum": words[name]}
    return {key: _with_words(each, words) for key, each in value.items()}


def _as_markdown(docstring: str) -> str:
    """Return a docstring with one line for each paragraph, and with Markdown's marks."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in docstring.split("\n\n")).replace("``", "`")


def _with_names(field: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the schema of a field that offers ``names`` beside any other text."""
    if "anyOf" in field:
        return {**field, "anyOf": [{"enum": names}, *field["anyOf"]]}
    about = {key: value for key, value in field.items() if key in {"description", "examples", "default"}}
    text = {key: value for key, value in field.items() if key not in about}
    return {**about, "anyOf": [{"enum": names}, text]}


def _sweep_schema(root: Schema, definitions: Mapping[str, Schema]) -> dict[str, Any]:
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
