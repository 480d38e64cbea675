"""Which known misses apply to what is simulated."""

from pathlib import Path
from typing import Any

import pytest

from wanbed.results.reading.known_misses import known_misses_of
from wanbed.runner.known_misses.classification import known_miss_facts, known_misses, misses_by_variant, misses_of
from wanbed.runner.known_misses.miss_classes import MISS_CLASSES
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint

LARGE, SMALL, NEAR = "4MiB", "48KiB", "530000B"
"""Windows of far more than 500,000 bytes, of far less, and of about as much."""


def point(
    *variants: dict[str, Any], pipelines: int = 2, jobs: Any = None, background: Any = None, **wan: Any
) -> SweepPoint:
    document = {
        **({} if jobs is None else {"jobs": jobs}),
        **({} if background is None else {"background": background}),
        "topology": {
            "datacenters": [{"name": name, "hosts": 2} for name in ("east", "west")],
            "wan": {"latency": "20ms", "node_pair_rate": "100Mbit", **wan},
        },
        "compute": {"forward": "10ms", "activation": "1MiB", "gradient": "1MiB"},
        "training": {"stages": 2, "pipelines": pipelines, "microbatches": 2, "iterations": 2},
        "variants": list(variants),
        "engine": "simulate",
    }
    return parse_experiment(document, "exp.yaml", Path()).points()[0]


def variant(name: str = "own", placement: list[Any] | None = None, **transport: Any) -> dict[str, Any]:
    placed = {} if placement is None else {"placement": placement}
    return {"name": name, "schedule": "1f1b", "transport": {"connections": 1, **transport}, **placed}


def names(of: SweepPoint) -> list[str]:
    return [miss.name for miss in known_misses(of)]


APART = [["east", "west"], ["west", "east"]]


@pytest.mark.parametrize(
    ("own", "wan", "expected"),
    [
        (variant(window=SMALL), {}, []),
        (variant(window=LARGE), {}, []),
        (variant(window=NEAR), {}, ["window-near-the-line"]),
        (variant(connections=4, window=SMALL), {}, ["unequal-connections"]),
        (variant(connections=4, window=LARGE), {}, ["unequal-connections"]),
        (
            variant(connections=4, window=LARGE, placement=APART),
            {},
            ["unequal-connections", "rings-over-connections"],
        ),
        (variant(window=LARGE), {"rate": "150Mbit"}, ["full-trunk"]),
        (variant(window="45MiB", placement=APART), {}, ["rings-over-deep-queues"]),
        (variant(window=LARGE), {"latency": "80ms"}, ["short-transfers"]),
        (variant(window=LARGE, congestion="reno"), {"latency": "80ms"}, []),
        (variant(window=SMALL), {"latency": "80ms"}, []),
        (variant(window=LARGE), {"events": [{"at": "1s", "for": "1s", "down": True}]}, ["outage"]),
        (variant(window=LARGE), {"events": [{"at": "1s", "for": "1s", "node_pair_rate": "50Mbit"}]}, []),
        (variant(window=LARGE), {"loss": "1%"}, ["loss-or-jitter"]),
        (variant(window=LARGE), {"loss": "0.01%"}, []),
        (variant(window=LARGE, congestion="bbr"), {"loss": "0.01%"}, ["loss-or-jitter"]),
        (variant(window=LARGE), {"loss": "1%", "latency": "90ms"}, ["short-transfers"]),
        (variant(connections=4, window=LARGE, model="ideal"), {"rate": "150Mbit"}, []),
    ],
)
def test_each_kind_is_told_by_what_it_does_on_the_wan(
    own: dict[str, Any], wan: dict[str, Any], expected: list[str]
) -> None:
    assert names(point(own, **wan)) == expected


def test_flows_in_the_background_mark_training_and_their_own_goodput() -> None:
    own = point(variant(window=LARGE), background=[{"name": "backup", "from": "east", "to": "west"}])
    found = known_misses(own)
    assert {miss.name: miss.figure for miss in found} == {
        "background": "iteration times",
        "background-goodput": "goodput of a flow",
    }


def test_jobs_that_fill_a_trunk_together_are_marked_beside_each_other_only() -> None:
    jobs = [{"name": name, "hosts": {"east": 1, "west": 1}, "variants": [name]} for name in ("ours", "theirs")]
    own = point(variant("ours"), variant("theirs"), jobs=jobs, pipelines=1, rate="150Mbit")
    assert misses_by_variant(own) == {
        "ours beside theirs": ["jobs-on-a-full-trunk"],
        "theirs beside ours": ["jobs-on-a-full-trunk"],
    }


def test_with_temporal_sharing_a_node_pair_carries_a_part_of_a_transfer() -> None:
    # 1 MiB over 100 Mbit/s and 60 ms is more than the line's 750,000 bytes, half of it is less.
    alone = point({**variant(window=LARGE), "schedule": "atlas"}, latency="30ms")
    shared = point({**variant(window=LARGE, sharing="temporal"), "schedule": "atlas"}, latency="30ms")
    assert (names(alone), names(shared)) == ([], ["short-transfers"])


def test_a_sweep_point_has_what_any_variant_has_and_each_variant_its_own() -> None:
    own = point(variant("small", window=SMALL), variant("near", window=NEAR), variant("four", connections=4))
    assert names(own) == ["unequal-connections", "window-near-the-line"]
    assert misses_by_variant(own) == {"near": ["window-near-the-line"], "four": ["unequal-connections"]}


def test_a_trial_records_what_applies_to_it_and_nothing_otherwise() -> None:
    own = point(variant("small", window=SMALL), variant("near", window=NEAR))
    small, near = own.variants
    assert known_miss_facts(own.topology, small) == {}
    assert known_misses_of(known_miss_facts(own.topology, near)) == misses_of(own.topology, near) != ()


def test_every_class_has_a_name_of_its_own_and_a_reason() -> None:
    names, reasons = {each.miss.name for each in MISS_CLASSES}, {each.why for each in MISS_CLASSES}
    assert len(names) == len(reasons) == len(MISS_CLASSES)
