"""The JSON schema takes every file that the reader takes, and refuses what can be told from one field."""

import json
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from pydantic import BaseModel, TypeAdapter, ValidationError

from wanbed import runner
from wanbed.ground.errors import InputError
from wanbed.ground.units import parse_duration_ns, parse_fraction, parse_rate_bps, parse_size_bytes
from wanbed.runner.companions.prefill.spec import PrefillSpec, TokensSpec
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.sweep import swept_paths
from wanbed.runner.experiment_reference.json_schema import DEFINITIONS, experiment_schema
from wanbed.testbed.network.topology_spec import LinkSpec, TopologySpec, WanSpec

ROOT = Path(runner.__file__).parent.parent
SHIPPED = sorted((ROOT / "runner" / "experiments").rglob("*.yaml"))
PUBLISHED = sorted((ROOT / "results" / "reference").rglob("experiments/*.yaml"))

SCHEMA = experiment_schema()
VALIDATOR = Draft7Validator(SCHEMA)

EXPERIMENT: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
        "wan": {"latency": "20ms", "rate": "100Mbit"},
    }
}


def models(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Every model with a definition in the schema, by its name."""
    found = {model.__name__: model}
    for below in model.__subclasses__():
        found |= models(below)
    return found


SECTIONS = {name: model for name, model in models(BaseModel).items() if name in SCHEMA[DEFINITIONS]}
FIELDS = [(name, field) for name, model in SECTIONS.items() for field in model.model_fields]


def agrees(document: object) -> bool:
    return VALIDATOR.is_valid(document)


def is_read(document: object) -> bool:
    try:
        ExperimentSpec.model_validate(document)
    except ValidationError:
        return False
    return True


def is_swept(path: str) -> bool:
    try:
        return bool(swept_paths({path: [1]}, {}))
    except InputError:
        return False


def test_the_schema_is_one() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert {WanSpec, LinkSpec, TopologySpec, PrefillSpec, TokensSpec} <= set(SECTIONS.values())


@pytest.mark.parametrize("path", [*SHIPPED, *PUBLISHED], ids=lambda path: path.stem)
def test_an_experiment_of_this_project_agrees_with_the_schema(path: Path) -> None:
    VALIDATOR.validate(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_experiment_names_the_schema_to_editors(path: Path) -> None:
    start, _, schema = path.read_text(encoding="utf-8").partition("\n")[0].partition("$schema=")
    assert start == "# yaml-language-server: "
    assert json.loads((path.parent / schema).read_text(encoding="utf-8")) == SCHEMA


@pytest.mark.parametrize(
    "section",
    [
        {"training": {"microbatch": 4}},
        {"training": {"microbatches": "4"}},
        {"training": {"microbatches": 0}},
        {"training": {"microbatches": 4.5}},
        {"training": {"precision": "fp64"}},
        {"training": None},
        {"variant": []},
        {"variants": [{"name": "no schedule"}]},
        {"variants": [{"name": "a", "schedule": "gpipe", "transport": {"connections": "all"}}]},
        {"variants": [{"name": "a", "schedule": "gpipe", "transport": {"window": 65536}}]},
        {"variants": [{"name": "a", "schedule": "gpipe", "placement": "east"}]},
        {"variants": [{"name": " ", "schedule": "gpipe"}]},
        {"model": "gpt-c"},
        {"model": {"hidden": 64}},
        {"compute": {"forward": 20}},
        {"compute": {"forward": ["20ms", 20]}},
        {"compute": {"forward": "20Mbit"}},
        {"compute": {"forward": "-20ms"}},
        {"compute": {"activation": "1Mib"}},
        {"compute": {"checkpointing": "no"}},
        {"prefill": {"rate": 4}},
        {"prefill": {"rate": "4/s", "depth": 3}},
        {"prefill": {"rate": "4/s", "model": "llama"}},
        {"prefill": {"rate": "4/s", "prompt": {"spread": 2}}},
        {"topology": {"datacenters": []}},
        {"topology": {"datacenters": [{"name": "east", "hosts": "2"}]}},
        {"topology": {"datacenters": [{"name": "east west", "hosts": 2}]}},
        {"topology": {**EXPERIMENT["topology"], "wan": {"latency": 20}}},
        {"topology": {**EXPERIMENT["topology"], "wan": {"loss": "0.1"}}},
        {"topology": {**EXPERIMENT["topology"], "links": [{"between": ["east"]}]}},
        {"topology": None},
        {"engine": "simulated"},
        {"clock": "real time"},
        {"dilation": "none"},
        {"dilation": 0.5},
        {"seed": -1},
        {"sweep": {"topology.wan.latency": "10ms"}},
        {"sweep": {"topology.wan.latency": []}},
    ],
    ids=str,
)
def test_what_the_reader_refuses_in_one_field_the_schema_refuses(section: dict[str, Any]) -> None:
    document = {**EXPERIMENT, **section}
    assert not is_read(document)
    assert not agrees(document)


def test_a_topology_may_be_the_path_of_a_file() -> None:
    assert agrees({"topology": "./my-topology.yaml"})


@pytest.mark.parametrize("name", ["my-package's-schedule", "./wan.yaml"])
def test_names_of_other_packages_and_paths_are_taken(name: str) -> None:
    topology = {"datacenters": EXPERIMENT["topology"]["datacenters"], "profile": name}
    assert agrees({"topology": topology, "variants": [{"name": "a", "schedule": name}], "compute": {"profile": name}})


@pytest.mark.parametrize(
    ("path", "value", "wrong"),
    [
        ("topology.wan.latency", "10ms", 10),
        ("topology.wan", {"rate": "1Gbit"}, {"rate": 1}),
        ("topology.datacenters.0.hosts", 4, "4"),
        ("topology.links.12.between.1", "east", 1),
        ("topology", "other.yaml", 1),
        ("model", "gpt-b", "gpt-c"),
        ("model.layers", 4, 0),
        ("compute.forward.0", "20ms", 20),
        ("compute.activation", ["1MiB", "2MiB"], 1),
        ("training.microbatches", 4, "4"),
        ("prefill.prompt.median", 100, 0),
        ("variants.0.schedule", "gpipe", 1),
        ("variants.1.transport.window", "1MiB", "1"),
        ("variants.0.placement", [["east"], ["west"]], "east"),
        ("variants.0.placement.0", ["east"], 1),
        ("variants.0.placement.0", "east", {}),
        ("variants.0.placement.0.1", "east", 1),
    ],
)
def test_a_swept_value_is_checked_as_the_field_is(path: str, value: object, wrong: object) -> None:
    assert is_swept(path)
    assert agrees({**EXPERIMENT, "sweep": {path: [value]}})
    assert not agrees({**EXPERIMENT, "sweep": {path: [value, wrong]}})


@pytest.mark.parametrize("path", ["variants.0.options.warmup_depth", "compute.options.a.b.0"])
def test_any_option_is_swept(path: str) -> None:
    assert is_swept(path)
    assert agrees({**EXPERIMENT, "sweep": {path: [1, "a", None]}})


@pytest.mark.parametrize(
    "path",
    ["topology.wan.latncy", "seed", "repeats", "variants", "variants.0", "variants.0.name", "training.warmup.0", "a"],
)
def test_a_path_that_is_not_swept_is_refused(path: str) -> None:
    assert not is_swept(path)
    assert not agrees({**EXPERIMENT, "sweep": {path: [1]}})


numbers = st.integers(0, 300).map(str) | st.floats(0, 300).map(str) | st.sampled_from(["-0", "+1", "1.50", "007", "٣"])
spaces = st.sampled_from(["", " ", "  ", "\n", "\t"])
units = st.sampled_from(["", "ns", "us", "µs", "ms", "s", "bit", "Mbps", "Gbit/s", "B", "kB", "MiB", "%", "/s", "/ s"])
quantities = st.builds("{}{}{}{}{}".format, spaces, numbers, spaces, units, spaces)
texts = (
    quantities | st.text(max_size=8) | st.sampled_from(["auto", "unlimited", "none", "poisson", "gpt-a", "cpu", "1"])
)
scalars = st.none() | st.booleans() | st.integers(-2, 2000) | st.floats(allow_nan=False) | texts
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(max_size=3), scalars, max_size=2)


@cache
def reader_and_schema(section: str, field: str) -> tuple[TypeAdapter[Any], Draft7Validator]:
    about = SECTIONS[section].model_fields[field]
    written = about.alias or field
    reference = {"$ref": f"#/{DEFINITIONS}/{section}/properties/{written}", DEFINITIONS: SCHEMA[DEFINITIONS]}
    return TypeAdapter(Annotated[about.annotation, field, *about.metadata]), Draft7Validator(reference)


@pytest.mark.parametrize(("section", "field"), FIELDS)
@given(value=values)
@settings(max_examples=15)
def test_what_a_field_reads_agrees_with_its_schema(section: str, field: str, value: object) -> None:
    reader, schema = reader_and_schema(section, field)
    try:
        reader.validate_python(value)
    except ValidationError:
        return
    schema.validate(value)


PARSERS = {
    "duration": (parse_duration_ns, SCHEMA[DEFINITIONS]["WanSpec"]["properties"]["latency"]),
    "rate": (parse_rate_bps, SCHEMA[DEFINITIONS]["WanSpec"]["properties"]["rate"]),
    "size": (parse_size_bytes, SCHEMA[DEFINITIONS]["PrefillSpec"]["properties"]["memory"]),
    "percentage": (parse_fraction, SCHEMA[DEFINITIONS]["WanSpec"]["properties"]["loss"]),
}


@pytest.mark.parametrize("quantity", PARSERS)
@given(text=quantities)
@settings(max_examples=100)
def test_a_quantity_agrees_if_it_is_read(quantity: str, text: str) -> None:
    parse, schema = PARSERS[quantity]
    try:
        parse(text)
    except ValueError as refusal:
        too_large_or_small = any(word in str(refusal) for word in ("above", "below"))
        assert too_large_or_small or not Draft7Validator(schema).is_valid(text)
    else:
        Draft7Validator(schema).validate(text)
