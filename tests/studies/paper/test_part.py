from pathlib import Path
from typing import Any

import numpy as np
import pytest

from studies.paper.claims import ATLAS, HEADLINES, TUNED, TUNED_ATLAS, UNTUNED
from studies.paper.part import FOLDER, PARTS, PaperPart, Volume, iteration_bytes, parts_named, volume_table
from wanbed.ground.errors import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulator.simulation import KIND_CODES
from wanbed.runner.simulator.variant_simulation import simulate_variant

RATE_BPS = 5 * 10**9


def test_every_experiment_of_the_paper_is_a_part_and_every_part_has_its_file() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {part.name for part in PARTS}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_is_emulated_in_virtual_time_at_the_real_rates_and_has_the_name_of_its_file(part: PaperPart) -> None:
    experiment = part.experiment("emulate")
    assert (experiment.name, experiment.spec.clock) == (part.name, "virtual")
    for point in experiment.points():
        assert {link.conditions.pair_rate_bps for link in point.topology.wan} == {RATE_BPS}
        assert point.spec.training.iterations > point.spec.training.warmup >= 1


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_can_be_simulated_too(part: PaperPart) -> None:
    assert part.experiment("simulate").spec.engine == "simulate"


def test_every_single_connection_of_a_headline_is_a_baseline_and_nothing_else_is() -> None:
    parts = {part.name: part for part in PARTS}
    for headline in HEADLINES:
        connections = {
            variant.name: variant.transport.connections
            for name in headline.parts
            for variant in parts[name].experiment("emulate").spec.variants
        }
        assert {name for name, number in connections.items() if number == 1} == {*UNTUNED, *TUNED}
        assert {ATLAS, TUNED_ATLAS} <= {name for name, number in connections.items() if number == "auto"}


def test_parts_come_in_their_own_order_and_all_where_none_is_named() -> None:
    assert parts_named([]) == PARTS
    assert [part.name for part in parts_named(["headline-deep", "fig4-timeline"])] == ["fig4-timeline", "headline-deep"]


def test_a_part_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InputError, match=r"--only: 'fig6' is no part of the paper: give one of fig2-dp-latency, "):
        parts_named(["fig6"])


def test_the_charts_that_are_published_as_files_are_on_the_page() -> None:
    for part in PARTS:
        assert set(part.figures) <= set(part.charts)
        assert part.file == Path(FOLDER / f"{part.name}.yaml")


MB = 1_000_000

TOPOLOGY = {
    "datacenters": [{"name": "east", "hosts": 4}, {"name": "west", "hosts": 4}],
    "wan": {"latency": "10ms", "rate": "10Gbit", "node_pair_rate": "1Gbit"},
}


def experiment(**sections: Any) -> Any:
    document = {
        "topology": TOPOLOGY,
        "compute": {"forward": "10ms", "activation": "1MB", "gradient": "3MB"},
        "training": {"stages": 4, "pipelines": 2, "microbatches": 3, "iterations": 2, "warmup": 1},
        **sections,
    }
    return parse_experiment(document, "test", Path())


def test_volume_counts_activations_gradients_and_all_reduces() -> None:
    (point,) = experiment().points()
    crossings = 2 * 3 * 2 * 3  # pipelines, boundaries, both ways, microbatches
    assert iteration_bytes(point.variants[0]) == crossings * MB + 4 * 2 * 3 * MB


def test_a_transfer_that_is_shared_is_scattered_and_gathered_on_top() -> None:
    shared = {"name": "shared", "schedule": "atlas", "transport": {"connections": 2, "sharing": "temporal"}}
    shared["transport"]["pipelines_per_cell"] = 2  # type: ignore[index]
    plain = {"name": "plain", "schedule": "atlas", "transport": {"connections": 2}}
    (point,) = experiment(variants=[shared, plain]).points()
    with_sharing, without = map(iteration_bytes, point.variants)
    wan_crossings = 2 * 1 * 2 * 3
    assert with_sharing - without == wan_crossings * 2 * MB // 2


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "varuna"])
def test_volume_equals_simulated_bytes(schedule: str) -> None:
    (point,) = experiment(
        training={"stages": 4, "microbatches": 3, "iterations": 1, "warmup": 0},
        variants=[{"name": "one", "schedule": schedule}],
    ).points()
    spans = simulate_variant(point.topology, point.variants[0], 1).spans
    sent = int(np.sum(spans.size_bytes[spans.kind == KIND_CODES["send"]]))
    assert iteration_bytes(point.variants[0]) == sent


def test_a_volume_counts_every_iteration_of_every_trial() -> None:
    swept = experiment(sweep={"topology.wan.latency": ["1ms", "10ms", "20ms"]})
    one = iteration_bytes(swept.points()[0].variants[0])
    assert Volume.of(swept) == Volume("experiment", 3, 6, 6 * one)


def test_the_table_ends_with_the_sum() -> None:
    table = volume_table([Volume("a", 1, 2, 3 * 10**9), Volume("b", 10, 20, 5 * 10**9)]).splitlines()
    assert [line.split(" | ")[1:] for line in table[2:]] == [
        ["1", "2", "3.00\u00a0GB |"],
        ["10", "20", "5.00\u00a0GB |"],
        ["11", "22", "8.00\u00a0GB |"],
    ]
