"""Whatever an experiment's document says: it reads back, hashes by what it means, or is refused in one line."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runner.small_experiment import SMALL, parsed, small
from wanbed.ground.errors import InputError

LATENCIES = st.integers(0, 10**6).map(lambda microseconds: f"{microseconds}us")
RATES = st.integers(1, 10**5).map(lambda megabits: f"{megabits}Mbit") | st.just("unlimited")
WANS = st.fixed_dictionaries(
    {}, optional={"latency": LATENCIES, "rate": RATES, "node_pair_rate": RATES, "loss": st.just("0.1%")}
)
EXPERIMENTS = st.fixed_dictionaries(
    {
        "topology": st.fixed_dictionaries(
            {"datacenters": st.just(SMALL["topology"]["datacenters"]), "wan": WANS},
            optional={
                "links": WANS.map(lambda wan: [{"between": ["west", "east"], **wan}]),
                "intra": st.fixed_dictionaries({}, optional={"latency": LATENCIES, "rate": RATES}),
            },
        )
    },
    optional={
        "model": st.sampled_from(["gpt-a", "gpt-tiny", {"hidden": 8, "context": 4}]),
        "compute": st.fixed_dictionaries(
            {"activation": st.just("1MiB")},
            optional={"forward": LATENCIES | st.lists(LATENCIES, min_size=4, max_size=4), "backward": LATENCIES},
        ),
        "training": st.fixed_dictionaries({}, optional={"microbatches": st.integers(1, 64)}),
        "sweep": st.fixed_dictionaries(
            {},
            optional={
                "topology.wan.latency": st.lists(LATENCIES, min_size=1, max_size=3, unique=True),
                "model": st.just(["gpt-a", "gpt-b"]),
                "training.microbatches": st.just([2, 3]),
            },
        ),
        "dilation": st.just("auto") | st.floats(1, 100) | st.integers(1, 100),
        "seed": st.integers(0, 2**63 - 1),
    },
)


@given(EXPERIMENTS)
def test_the_resolved_configuration_reads_back_as_the_same_experiment(document: dict[str, Any]) -> None:
    experiment = parsed(document)
    for text in (json.dumps(experiment.document(), sort_keys=True), yaml.safe_dump(experiment.document())):
        again = parsed(yaml.safe_load(text))
        assert again.config_hash == experiment.config_hash
        assert [point.topology for point in again.points()] == [point.topology for point in experiment.points()]
        assert [point.variants for point in again.points()] == [point.variants for point in experiment.points()]


def reordered(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: reordered(tree[key]) for key in reversed(tree)}
    return [reordered(entry) for entry in tree] if isinstance(tree, list) else tree


@given(EXPERIMENTS)
def test_the_hash_does_not_depend_on_the_order_of_keys(document: dict[str, Any]) -> None:
    assert parsed(reordered(document)).config_hash == parsed(document).config_hash


@given(WANS, st.sampled_from(["latency", "rate", "node_pair_rate"]))
def test_an_override_changes_what_it_names_as_the_file_would(wan: dict[str, str], field: str) -> None:
    value = "7ms" if field == "latency" else "7Mbit"
    topology = {**SMALL["topology"], "wan": wan}
    by_file = parsed(small(topology={**topology, "wan": {**wan, field: value}}))
    by_sweep = parsed(small(topology=topology, sweep={f"topology.wan.{field}": [value]}))
    assert by_sweep.points()[0].topology == by_file.points()[0].topology


SECTIONS = ["topology", "model", "compute", "training", "variants", "transport", "wan", "intra", "links", "sweep"]
FIELDS = ["name", "datacenters", "hosts", "between", "latency", "rate", "hidden", "context", "forward", "activation"]
MORE_FIELDS = ["kind", "stages", "schedule", "connections", "placement", "options", "profile", "topology.wan.latency"]
NAMES = st.sampled_from(SECTIONS + FIELDS + MORE_FIELDS)
ODD_VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-1, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["10ms", "1Gbit", "1MiB", "east", "auto", "replay", "gpt-a", "", "\n", "x" * 200])
)
ODD_TREES = st.recursive(
    ODD_VALUES, lambda below: st.lists(below, max_size=2) | st.dictionaries(NAMES, below, max_size=3), max_leaves=8
)


@given(st.dictionaries(NAMES, ODD_TREES, max_size=3))
def test_any_document_is_an_experiment_or_one_line(changes: dict[str, Any]) -> None:
    text = ""
    try:
        assert parsed(small(**changes)).config_hash
    except InputError as refused:
        text = str(refused)
    assert text.isprintable()


def test_a_default_written_out_hashes_like_one_left_out() -> None:
    assert parsed(small(repeats=1, engine="emulate", clock="real")).config_hash == parsed(SMALL).config_hash
    topology = {**SMALL["topology"], "wan": {"latency": "40000us", "rate": "1000Mbit"}}
    assert parsed(small(topology=topology)).config_hash == parsed(SMALL).config_hash


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"repeats": 2}, {"compute": {"forward": "11ms", "activation": "1MiB"}}, {"dilation": 1}],
)
def test_another_configuration_has_another_hash(change: dict[str, Any]) -> None:
    assert parsed(small(**change)).config_hash != parsed(SMALL).config_hash
