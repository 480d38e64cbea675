"""Make the tables of fields on the reference page of the experiment file, from its JSON schema."""

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from wanbed.ground.files import with_marked_text
from wanbed.netem_profiles.preset import load_preset_spec, preset_names
from wanbed.runner.experiment_reference.json_schema import DEFINITIONS, experiment_schema

BEGIN = "<!-- fields of the experiment file: python -m wanbed.runner.experiment_reference --write -->\n"
END = "<!-- end of fields -->\n"

_WIDTH = 120
_DEFAULT = " Default: "
"""The mark in a description before the field's default, where the field is left empty."""

Schema = Mapping[str, Any]


def with_fields(page: str) -> str:
    """Return the page with the tables of all fields between its two marks. Raise ValueError if a mark is missing."""
    return with_marked_text(page, BEGIN, END, f"{field_tables()}\n{preset_table()}")


def preset_table() -> str:
    """Return the shipped network presets with the regions that they link, as Markdown."""
    presets = {name: load_preset_spec(name) for name in preset_names()}
    rows = [
        f"| `{name}` | {preset.title} | {', '.join(f'`{region}`' for region in preset.regions) or 'any'} |"
        for name, preset in presets.items()
    ]
    return "\n".join(["### Network presets", "", "| preset | links | datacenters |", "| --- | --- | --- |", *rows, ""])


def field_tables() -> str:
    """Return every section with its fields, in the order of the file, as Markdown."""
    schema = experiment_schema()
    definitions = schema[DEFINITIONS]
    places: dict[str, list[str]] = {}
    for reference, path in _sections(schema, "", definitions):
        places.setdefault(reference, []).append(path)
    headings = {reference: ", ".join(f"`{path}`" for path in paths) for reference, paths in places.items()}
    sections = {"The file": schema, **{headings[name]: definitions[name] for name in places}}
    return "\n".join(_section(heading, section, headings) for heading, section in sections.items())


def _sections(section: Schema, above: str, definitions: Mapping[str, Schema]) -> Iterator[tuple[str, str]]:
    """Yield the name of the definition of every section below ``section``, with the path where it stands."""
    for name, field in section["properties"].items():
        for reference in _references(field):
            if "properties" in definitions[reference]:
                yield reference, above + name
                yield from _sections(definitions[reference], f"{above}{name}.", definitions)


def _references(value: Schema) -> Iterator[str]:
    if "$ref" in value:
        yield value["$ref"].rpartition("/")[2]
    if isinstance(value.get("items"), Mapping):
        yield from _references(value["items"])
    for branch in value.get("anyOf", ()):
        yield from _references(branch)


def _section(heading: str, section: Schema, headings: Mapping[str, str]) -> str:
    paragraphs = [textwrap.fill(text, _WIDTH) for text in section["description"].split("\n\n")]
    rows = [
        _row(name, field, headings, required=name in section.get("required", ()))
        for name, field in section["properties"].items()
    ]
    table = ["| field | type | default | example | description |", "| --- | --- | --- | --- | --- |", *rows]
    return "\n\n".join([f"### {heading}", *paragraphs, "\n".join(table)]) + "\n"


def _row(name: str, field: Schema, headings: Mapping[str, str], *, required: bool) -> str:
    description, _, derived = field["description"].partition(_DEFAULT)
    default = "*required*" if required else derived.removesuffix(".") or _default(field)
    examples = ", ".join(f"`{_as_written(example)}`" for example in field["examples"])
    cells = (f"`{name}`", _kind(field, headings), default, examples, description)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(field: Schema) -> str:
    if "default" in field:
        return f"`{_as_written(field['default'])}`"
    if any(branch.get("type") == "null" for branch in field.get("anyOf", ())):
        return "none"
    if "$ref" in field:
        return "its defaults"
    return "empty" if field.get("type") in {"array", "object"} else ""


def _as_written(value: object) -> str:
    """Return a value as YAML on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=float("inf"), allow_unicode=True)
    return text.removesuffix("...\n").strip()


def _kind(value: Schema, headings: Mapping[str, str]) -> str:
    """Return what a field takes: a quantity, a range, words, a section."""
    if "$ref" in value:
        heading = headings[value["$ref"].rpartition("/")[2]]
        return f"[section](#{_anchor(heading)})"
    if "anyOf" in value:
        return " or ".join(
            dict.fromkeys(_kind(each, headings) for each in value["anyOf"] if each.get("type") != "null")
        )
    if "enum" in value or "const" in value:
        return ", ".join(f"`{_as_written(word)}`" for word in value.get("enum", [value.get("const")]))
    if value.get("type") == "array":
        entries = _kind(value["items"], headings)
        return "list of " + re.sub(r"^(\[section|list|[a-z ]+$)", r"\1s", entries, count=1)
    return str(value["title"]) if "title" in value else _word(value)


def _word(value: Schema) -> str:
    """Return the word for a plain JSON type, with its range."""
    words = {"integer": "whole number", "boolean": "`true` or `false`", "string": "name", "object": "mapping"}
    word = words.get(value["type"], str(value["type"]))
    if "exclusiveMinimum" in value:
        return f"{word} above {value['exclusiveMinimum']:g}, at most {value['maximum']:g}"
    if "minimum" in value:
        return f"{word}, {_bound(value['minimum'])} to {_bound(value['maximum'])}"
    return word


def _bound(number: float) -> str:
    return f"{number:g}" if isinstance(number, float) else str(number)


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
