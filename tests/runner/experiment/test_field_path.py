from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refused import refused
from wanbed.ground.errors import InputError
from wanbed.runner.experiment.field_path import (
    can_be_named,
    entry_step,
    is_entry_step,
    located,
    new_link,
    override_source,
    parse_path,
    position_of,
    unknown_entry,
    with_override,
    with_value,
)
from wanbed.runner.experiment.variant_spec import VariantSpec
from wanbed.testbed.network.topology_spec import DatacenterSpec, LinkSpec, WanSpec

DOCUMENT: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "5ms"},
    },
    "model": "gpt-a",
    "variants": [{"name": "a", "schedule": "gpipe"}],
    "training": None,
}


def refusal(override: str) -> str:
    text = refused(lambda: with_override(DOCUMENT, override))
    assert text.startswith("--set ")
    assert text.isprintable()
    return text


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("topology.datacenters.0.hosts=64", ["topology", "datacenters", 0, "hosts"], 64),
        ("topology.wan.latency=10ms", ["topology", "wan", "latency"], "10ms"),
        ("topology.wan.rate = 1Gbit", ["topology", "wan", "rate"], "1Gbit"),
        ("topology.intra.latency=1ms", ["topology", "intra", "latency"], "1ms"),
        ("training.stages=2", ["training", "stages"], 2),
        ("variants.0.transport.connections=auto", ["variants", 0, "transport", "connections"], "auto"),
        ("variants.0.options.depth.most=[1, 2]", ["variants", 0, "options", "depth", "most"], [1, 2]),
        ("compute.forward=[1ms, 2ms]", ["compute", "forward"], ["1ms", "2ms"]),
        ("model={hidden: 8, context: 8}", ["model"], {"hidden": 8, "context": 8}),
        ("sweep.topology.wan.latency=[1ms]", ["sweep", "topology.wan.latency"], ["1ms"]),
        ("sweep={}", ["sweep"], {}),
        ("name=a=b", ["name"], "a=b"),
        ("name=", ["name"], None),
    ],
)
def test_an_override_sets_one_value_and_makes_the_sections_it_needs(
    override: str, path: list[Any], value: object
) -> None:
    changed = with_override(DOCUMENT, override)
    for step in path:
        changed = changed[step]
    assert changed == value


def test_overrides_leave_the_document_they_start_from_as_it_was() -> None:
    before = deepcopy(DOCUMENT)
    with_override(DOCUMENT, "topology.datacenters.1.hosts=9")
    assert before == DOCUMENT


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("topology.wan.latancy=1ms", "no field 'latancy' in topology.wan, did you mean 'latency'?"),
        ("topologie.wan.latency=1ms", "no field 'topologie', did you mean 'topology'?"),
        ("zzz=1", "no field 'zzz', known here: background, checkpoint_every, clock, compute,"),
        ("=1", "no field '', known here: background, checkpoint_every, clock"),
        ("topology..wan=1", "no field '' in topology, known here: "),
        ("topology.datacenters.east.hosts=1", "topology.datacenters is a list, 'east' is no index: count from 0"),
        ("topology.datacenters.-1.hosts=1", "topology.datacenters is a list, '-1' is no index: count from 0"),
        ("background[0].rate=1Mbit", "background is a list, '[0]' is no index: count from 0, as in background.0"),
        ("topology.datacenters.2.hosts=1", "topology.datacenters has 2 entries here, there is no 2"),
        ("variants.1.name=b", "variants has 1 entry here, there is no 1"),
        (
            "topology.datacenters.99999999999.hosts=1",
            "topology.datacenters has 2 entries here, there is no 99999999999",
        ),
        ("topology.links.0.latency=1ms", "topology.links has no entries here, there is no 0: set topology.links as a"),
        (
            "topology.wan.latency.ms=1",
            "topology.wan.latency is a single value, it has no field 'ms': set topology.wan.l",
        ),
        ("model.hidden=4", "model is the single value 'gpt-a' here: set model itself"),
        ("training.microbatches", "no value given, write it like topology.wan.latency=10ms"),
        ("training.microbatches=[1", "line 1: not YAML: "),
        ("training.micro\nbatches=1", "no field 'micro\\nbatches' in training, did you mean 'microbatches'?"),
    ],
)
def test_invalid_overrides_raise_one_line(override: str, text: str) -> None:
    assert f": {text}" in refusal(override)


def test_a_name_in_brackets_may_have_dots_and_equals_signs() -> None:
    document = {**DOCUMENT, "variants": [{"name": "a.b=c", "schedule": "gpipe"}]}
    changed = with_override(document, "variants[a.b=c].transport.connections=2")
    assert changed["variants"] == [{"name": "a.b=c", "schedule": "gpipe", "transport": {"connections": 2}}]


def test_a_name_with_a_bracket_has_to_be_given_by_index() -> None:
    assert "a name with a bracket cannot be written in a path: give the entry's index" in refusal(
        "variants[x] [y].transport.connections=2"
    )


def test_a_long_path_is_cut() -> None:
    assert len(refusal(5000 * "[" + "=1")) < 400


def test_a_refusal_names_the_override() -> None:
    assert refusal("topology.wan.latancy=1ms").startswith("--set topology.wan.latancy=1ms: ")


NESTED = st.recursive(
    st.integers(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below, max_size=3),
)


def leaves(tree: Any, above: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if isinstance(tree, dict | list):
        entries = tree.items() if isinstance(tree, dict) else enumerate(tree)
        return {path: leaf for key, entry in entries for path, leaf in leaves(entry, (*above, str(key))).items()}
    return {above: tree}


@given(st.data(), NESTED.filter(leaves))
def test_setting_a_value_changes_it_and_nothing_else(data: st.DataObject, tree: Any) -> None:
    path = data.draw(st.sampled_from(sorted(leaves(tree))))
    before = deepcopy(tree)
    assert leaves(with_value(tree, path, "new")) == {**leaves(tree), path: "new"}
    assert tree == before


@given(st.text(alphabet="abglmnoptuvwxy.0-_ ", max_size=30))
def test_any_path_is_known_or_refused_in_one_line(text: str) -> None:
    line = ""
    try:
        parse_path(text)
    except InputError as refused:
        line = str(refused)
    assert line.isprintable()


@pytest.mark.parametrize(
    "path",
    [
        "topology.links.3.between.1",
        "compute.forward.2",
        "compute.activation.0",
        "variants.0.placement.1",
        "model.heads",
    ],
)
def test_paths_lead_into_lists_and_unions(path: str) -> None:
    assert parse_path(path) == tuple(path.split("."))


REGIONS: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "us.east-1", "hosts": 1}, {"name": "eu_west", "hosts": 1}],
        "links": [{"between": ["us.east-1", "eu_west"]}, {"from": "eu_west", "to": "us.east-1"}],
    },
    "variants": [{"name": "gpipe", "schedule": "gpipe"}, {"name": "atlas", "schedule": "atlas"}],
}


@pytest.mark.parametrize(
    ("path", "indexed"),
    [
        ("topology.links[us.east-1, eu_west].latency", "topology.links.0.latency"),
        ("topology.links[eu_west,us.east-1].latency", "topology.links.0.latency"),
        ("topology.links[eu_west to us.east-1].latency", "topology.links.1.latency"),
        ("topology.datacenters[us.east-1].hosts", "topology.datacenters.0.hosts"),
        ("variants[atlas].transport.connections", "variants.1.transport.connections"),
    ],
)
def test_an_entry_of_a_list_is_named_in_brackets(path: str, indexed: str) -> None:
    assert with_override(REGIONS, f"{path}=7") == with_override(REGIONS, f"{indexed}=7")


@pytest.mark.parametrize(
    ("path", "entry"),
    [
        ("topology.links[west, east].latency", {"between": ["east", "west"], "latency": "1ms"}),
        ("topology.links[west to east].latency", {"from": "west", "to": "east", "latency": "1ms"}),
    ],
)
def test_a_link_that_has_no_entry_gets_one(path: str, entry: dict[str, Any]) -> None:
    assert with_override(DOCUMENT, f"{path}=1ms")["topology"]["links"] == [entry]
    assert with_override(REGIONS, f"{path}=1ms")["topology"]["links"] == [*REGIONS["topology"]["links"], entry]


def test_a_named_link_is_set_as_a_whole_and_keeps_its_ends() -> None:
    changed = with_override(REGIONS, "topology.links[eu_west to us.east-1]={rate: 1Gbit}")
    assert changed["topology"]["links"][1] == {"from": "eu_west", "to": "us.east-1", "rate": "1Gbit"}


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("topology.datacenters[us.east-2].hosts=1", "topology.datacenters has no entry 'us.east-2' here, did you mean"),
        ("variants[zb].schedule=zb", "variants has no entry 'zb' here, known here: gpipe, atlas"),
        ("topology.links[east].rate=1Gbit", "'east' names no link, write it like [east, west], or [east to west]"),
        ("topology.links[a, b, c].rate=1Gbit", "'a, b, c' names no link, write it like [east, west]"),
        ("topology.links[east, west.rate=1Gbit", "no field 'links[east, west' in topology"),
        ("topology.wan[east].rate=1Gbit", "no field '[east]' in topology.wan"),
        ("topology.links[east, west].rat=1Gbit", "no field 'rat' in topology.links[east, west], did you mean 'rate'?"),
        (
            "topology.links.0.source=east",
            "no field 'source' in topology.links.0, known here: between, egress_price, events, from",
        ),
    ],
)
def test_a_name_that_fits_no_entry_is_refused(override: str, text: str) -> None:
    assert text in refused(lambda: with_override(REGIONS, override))


def test_a_new_link_that_is_set_as_a_whole_gets_its_ends_and_keeps_what_else_is_written() -> None:
    changed = with_override(DOCUMENT, "topology.links[west, east]={rate: 1Gbit}")
    assert changed["topology"]["links"] == [{"between": ["east", "west"], "rate": "1Gbit"}]
    other = with_override(REGIONS, "topology.links[eu_west to us.east-1]={to: elsewhere}")
    assert other["topology"]["links"][1] == {"from": "eu_west", "to": "elsewhere"}


def test_equal_places_have_equal_paths_and_a_link_without_an_entry_keeps_its_name() -> None:
    def place(path: str) -> tuple[str, ...]:
        return located(REGIONS, parse_path(path))

    assert place("variants[atlas].schedule") == ("variants", "1", "schedule")
    assert place("topology.links[eu_west,us.east-1].rate") == ("topology", "links", "0", "rate")
    assert (
        place("topology.links[a, b].rate") == place("topology.links[b,a].rate") != place("topology.links[b to a].rate")
    )
    assert place("variants[other].schedule") == ("variants", "[other]", "schedule")
    assert place("model.hidden") == ("model", "hidden")
    assert located({"model": "gpt-a"}, ("model", "hidden", "0")) == ("model", "hidden", "0")


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("variants.1.schedule=zb", "variants has 1 entry here, there is no 1"),
        ("topology.datacenters.2.hosts=1", "topology.datacenters has 2 entries here, there is no 2"),
        ("variants.0000000000.schedule=zb", "variants has 1 entry here, there is no 0000000000"),
        ("jobs.0.name=a", "jobs has no entries here, there is no 0: set jobs as a whole"),
        ("variants[zb].schedule=zb", "variants has no entry 'zb' here, known here: a"),
        ("topology.datacenters.\u0661.hosts=1", "'\u0661' is no index: count from 0"),
    ],
)
def test_an_entry_that_is_not_there_is_not_made(override: str, text: str) -> None:
    assert text in refusal(override)


def test_the_source_of_a_message_shortens_a_long_value_and_keeps_a_name_with_an_equals_sign() -> None:
    assert override_source("variants[a=b].pool=1") == "--set variants[a=b].pool=1"
    assert override_source("seed") == "--set seed"
    assert len(override_source("name=" + 1000 * "x")) < 200


LINKS = [
    {"between": ["east", "west"]},
    {"from": "west", "to": "east"},
    {"between": ["north", "east"]},
    "no mapping",
    {"from": "north"},
]


@pytest.mark.parametrize(
    ("named", "position"),
    [
        ("east, west", 0),
        ("west,east", 0),
        ("west to east", 1),
        (" west to  east ", 1),
        ("east to west", None),
        ("east, north", 2),
        ("west, north", None),
        ("north to x", None),
    ],
)
def test_a_link_is_found_by_its_ends_in_any_order_and_one_direction_only_in_its_own(
    named: str, position: int | None
) -> None:
    assert position_of(entry_step(named), LINKS) == position


def test_an_entry_with_a_name_is_found_by_it_alone() -> None:
    entries = [{"schedule": "gpipe"}, {"name": "a b"}, {"name": 7}, {"name": "a b"}]
    assert position_of(entry_step("a b"), entries[1:]) == 0
    assert position_of(entry_step(" 7 "), entries[1:]) == 1
    assert position_of(entry_step("a, b"), entries[1:]) is None


def test_a_new_link_has_its_ends_the_same_however_they_are_written() -> None:
    assert new_link("[west, east]") == new_link("[ east ,west ]") == {"between": ["east", "west"]}
    assert new_link("[west  to east ]") == {"from": "west", "to": "east"}
    for written in ("[east]", "[a, b, c]"):
        with pytest.raises(InputError, match="names no link"):
            new_link(written)


def test_only_steps_in_brackets_name_entries_and_only_of_lists_whose_entries_have_names() -> None:
    assert is_entry_step("[a]")
    assert not any(is_entry_step(step) for step in ("a", "[a", "a]", "0"))
    assert all(can_be_named(kind) for kind in (DatacenterSpec, VariantSpec, LinkSpec))
    assert not any(can_be_named(kind) for kind in (WanSpec, str, int))


def test_a_name_that_is_not_there_is_refused_with_the_nearest_or_all_that_are() -> None:
    entries = [{"name": "gpipe"}, {"schedule": "atlas"}, "text", {"name": "varuna"}]
    assert unknown_entry("variants", "[gpip]", entries) == "variants has no entry 'gpip' here, did you mean 'gpipe'?"
    assert unknown_entry("variants", "[zzz]", entries) == "variants has no entry 'zzz' here, known here: gpipe, varuna"
    assert unknown_entry("variants", "[zzz]", []).endswith("known here: none")
