"""The critical path of spans that were written by hand."""

from typing import Any

import numpy as np
import pytest

from tests.support.present import present
from tests.support.runner.planner_instances import document, random_task, task_of
from wanbed.results.records.span_columns import SpanColumns
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.planner.bottleneck import IterationLimits, Part, bottleneck_of, critical_path_ns
from wanbed.runner.planner.planning import search_space
from wanbed.runner.planner.search import greedy_candidates
from wanbed.runner.planner.search_space import Candidate
from wanbed.runner.resolve.connections import window_bps
from wanbed.runner.resolve.tcp_effects import effects_of
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant

Row = tuple[int, str, int, int, int, int]
"""Rank, kind, microbatch, start, end and peer."""

GPU_A, GPU_B = Part("computing", ("a",), 0), Part("computing", ("b",), 1)
HELD_A, LINK = Part("schedule", ("a",), 0), Part("link", ("a", "b"))


def path_of(
    rows: list[Row], begin_ns: int = 0, cells: int = 1, *, overlap: bool = True, receive: str = "buffers"
) -> tuple[dict[Part, int], dict[Part, int]]:
    """Return the critical path of one iteration of two stages, one in each datacenter."""
    variant_document = {"name": "v", "schedule": "gpipe", "transport": {"overlap": overlap, "receive": receive}}
    task = task_of(document({"a": 2, "b": 2}, 2, variants=[variant_document]))
    variant = task.resolve(Candidate(cells, 1, (("a", 1), ("b", 1))))
    in_order = sorted(rows, key=lambda row: (row[0], row[3], row[4]))
    rank, kind, microbatch, start, end, peer = (np.array(column) for column in zip(*in_order, strict=True))
    codes, zeros = np.array([KIND_CODES[each] for each in kind]), np.zeros(len(rows), np.int64)
    columns = SpanColumns(rank, codes, zeros, microbatch, start, end, zeros, peer, zeros - 1)
    return critical_path_ns(variant, Simulation(columns, (), {}), begin_ns)


ONE: list[Row] = [
    (0, "forward", 0, 0, 10, -1),
    (1, "receive", 0, 15, 30, 0),
    (1, "forward", 0, 30, 40, -1),
    (1, "backward", 0, 40, 60, -1),
    (0, "receive", 0, 70, 75, 1),
    (0, "backward", 0, 75, 95, -1),
]


RECEIVED: list[Row] = [
    (0, "forward", 0, 0, 10, -1),
    (0, "forward", 1, 10, 20, -1),
    (1, "receive", 0, 15, 30, 0),
    (1, "forward", 0, 30, 40, -1),
    (1, "receive", 1, 50, 65, 0),
    (1, "forward", 1, 65, 75, -1),
]


def test_a_microbatch_goes_through_gpus_and_links_and_every_nanosecond_counts_once() -> None:
    parts, crossings = path_of(ONE)
    assert parts == {GPU_A: 10 + 20, LINK: 20 + 15, GPU_B: 10 + 20}
    assert crossings == {LINK: 2}


SUMMED_IN_TWO: list[Row] = [
    row
    for rank in (0, 2)
    for row in (
        (rank, "backward", 0, 0, 40, -1),
        (rank, "all_reduce", -1, 20, 50, -1),
        (rank, "all_reduce", -1, 50, 80, -1),
        (rank, "optimizer", -1, 80, 85, -1),
    )
]
"""Both replicas complete a bucket at 20 and at 40 of a backward of 40; each is summed for 30."""

SUMMED_LATER: list[Row] = [
    row
    for rank in (0, 2)
    for row in (
        (rank, "backward", 0, 0, 40, -1),
        (rank, "all_reduce", -1, 20, 35, -1),
        (rank, "all_reduce", -1, 40, 55, -1),
    )
]
LAST_SEND: list[Row] = [(1, "backward", 0, 0, 10, -1), (1, "send", 0, 10, 40, 0), (1, "optimizer", -1, 40, 45, -1)]
BLOCKED: list[Row] = [(0, "forward", 0, 0, 10, -1), (0, "send", 0, 10, 40, 1), (0, "forward", 1, 42, 52, -1)]


@pytest.mark.parametrize(
    ("rows", "options", "parts"),
    [
        pytest.param(
            ONE, {"begin_ns": 20}, {GPU_A: 20, LINK: 10 + 15, GPU_B: 30}, id="nothing before the warm-up ends"
        ),
        # Before the second forward the GPU had nothing to wait for: its schedule held it back since the first one.
        pytest.param(
            [*ONE[:4], (0, "receive", 0, 62, 64, 1), (0, "forward", 1, 64, 75, -1), ONE[5]],
            {},
            {GPU_A: 10 + 11 + 20, HELD_A: 54},
            id="a GPU that was busy when its tensor arrived",
        ),
        pytest.param(
            [*ONE[:5], (0, "backward", 0, 80, 100, -1)],
            {},
            {GPU_A: 30, LINK: 35, GPU_B: 30, HELD_A: 5},
            id="what begins after its tensor has arrived was held back",
        ),
        pytest.param(
            [
                (0, "backward", 0, 0, 10, -1),
                (0, "all_reduce", -1, 10, 50, -1),
                (2, "backward", 0, 0, 30, -1),
                (2, "all_reduce", -1, 30, 50, -1),
            ],
            {"cells": 2},
            {Part("all_reduce", ("a",), 0): 20, GPU_A: 30},
            id="an all-reduce waits for the replica that is ready last",
        ),
        pytest.param(
            [
                (0, "backward", 0, 0, 10, -1),
                (0, "norm", -1, 10, 45, -1),
                (0, "optimizer", -1, 45, 50, -1),
                (1, "backward", 0, 0, 30, -1),
                (1, "norm", -1, 30, 40, -1),
            ],
            {},
            {GPU_A: 5, Part("norm", ()): 15, GPU_B: 30},
            id="the gradient norm waits for the rank of any stage that is ready last",
        ),
        pytest.param(
            SUMMED_IN_TWO,
            {"cells": 2},
            {Part("all_reduce", ("a",), 0): 60, GPU_A: 20 + 5},
            id="buckets go back to the bucket before or into the backward that completed them",
        ),
        pytest.param(
            SUMMED_LATER,
            {"cells": 2},
            {Part("all_reduce", ("a",), 0): 15, GPU_A: 40},
            id="a bucket that waited for the backward leaves the one before it out",
        ),
        pytest.param(LAST_SEND, {}, {GPU_B: 15, LINK: 30}, id="an optimizer step that waits for the last send"),
        pytest.param(BLOCKED, {"overlap": False}, {GPU_A: 10 + 10, LINK: 30, HELD_A: 2}, id="sends that block"),
        pytest.param(BLOCKED, {}, {GPU_A: 10 + 10, HELD_A: 32}, id="sends that do not block"),
        pytest.param(
            [*ONE[:5], (0, "send", 0, 10, 80, 1), (0, "backward", 0, 80, 100, -1)],
            {"overlap": False},
            {GPU_A: 10 + 20, LINK: 70},
            id="a tensor that arrives during a send that blocks is not waited for",
        ),
        pytest.param(
            RECEIVED, {"receive": "blocks"}, {GPU_A: 10, LINK: 20 + 25, GPU_B: 10 + 10}, id="receives that block"
        ),
        pytest.param(RECEIVED, {}, {GPU_A: 20, LINK: 45, GPU_B: 10}, id="receives that do not block"),
    ],
)
def test_the_path_goes_back_through_what_each_part_waited_for(
    rows: list[Row], options: dict[str, Any], parts: dict[Part, int]
) -> None:
    assert path_of(rows, **options)[0] == parts


@pytest.mark.parametrize(
    ("rows", "options", "crossings"),
    [
        (ONE, {"begin_ns": 20}, {LINK: 1}),
        (LAST_SEND, {}, {}),
        (BLOCKED, {}, {}),
        (BLOCKED, {"overlap": False}, {}),
        (RECEIVED, {"receive": "blocks"}, {LINK: 3}),
        (RECEIVED, {"receive": "blocks", "begin_ns": 39}, {LINK: 2}),
        (RECEIVED, {}, {LINK: 1}),
    ],
)
def test_a_tensor_and_its_request_cross_the_link_and_waiting_for_a_send_does_not(
    rows: list[Row], options: dict[str, Any], crossings: dict[Part, int]
) -> None:
    assert path_of(rows, **options)[1] == crossings


APART = Candidate(1, 1, (("a", 1), ("b", 1)))
MIB = 2**20


def found(
    link: dict[str, Any],
    transport: dict[str, Any],
    *,
    forward: str = "10ms",
    microbatches: int = 40,
    activation: str = "1MiB",
) -> tuple[IterationLimits, Simulation, float]:
    """Return the bottleneck of two stages in two datacenters, its simulation, and its measured time in seconds."""
    task = task_of(
        document(
            {"a": 1, "b": 1},
            2,
            links=[{"between": ["a", "b"], **link}],
            compute={"forward": forward, "activation": "1MiB"},
            training={"stages": 2, "microbatches": microbatches},
            variants=[{"name": "v", "schedule": "gpipe", "transport": transport}],
        )
    )
    variant = task.resolve(APART)
    simulation = simulate_variant(task.topology, variant, 2, effects=effects_of(variant.transport))
    start_ns, end_ns = simulation.windows_ns[1][0], simulation.windows_ns[-1][1]
    return bottleneck_of(task.topology, variant, simulation, 1), simulation, (end_ns - start_ns) / 1e9


FAST = {"latency": "1ms", "node_pair_rate": "10Gbit", "rate": "100Gbit"}


def test_where_gpus_compute_all_the_time_they_are_the_bottleneck() -> None:
    bottleneck, simulation, time_s = found(FAST, {"connections": 16})
    assert bottleneck.path[0].part.kind == "computing"
    assert bottleneck.share("computing") > 0.9
    # 40 forwards of 10 ms and 40 backwards of 20 ms, whichever stage it is.
    assert bottleneck.gpu.busy * time_s == pytest.approx(40 * 0.03, rel=0.001)
    assert simulation.utilization(2, 1) <= bottleneck.gpu.busy


@pytest.mark.parametrize(
    ("link", "transport", "capacity", "capacity_bps"),
    [
        ({"node_pair_rate": "200Mbit", "rate": "1Gbit"}, {"connections": 16}, "node_pair", 200e6),
        ({"node_pair_rate": "unlimited", "rate": "200Mbit"}, {"connections": 16}, "node_pair", 200e6),
        (
            {"node_pair_rate": "10Gbit", "latency": "20ms"},
            {"connections": 2, "window": "256KiB"},
            "windows",
            2 * window_bps(TransportSpec(window="256KiB"), 40_000_000) * 1514 / 1448,
        ),
    ],
)
def test_where_a_link_is_full_its_direction_and_its_capacity_are_named(
    link: dict[str, str], transport: dict[str, Any], capacity: str, capacity_bps: float
) -> None:
    bottleneck, _, time_s = found({**FAST, **link}, transport, forward="1ms")
    use = present(bottleneck.link)
    assert bottleneck.path[0].part == Part("link", ("a", "b"))
    assert bottleneck.path[0].share > 0.8
    assert {use.source, use.destination} == {"a", "b"}
    assert use.capacity == capacity
    assert use.capacity_bps == pytest.approx(capacity_bps, rel=0.01)
    assert use.busy * capacity_bps * time_s / 8 == pytest.approx(40 * MIB * 1514 / 1448, rel=0.03)


@pytest.mark.parametrize("rate", ["100Gbit", "300Mbit"])
def test_the_use_of_links_is_the_same_whether_one_part_stands_for_all_or_each_is_simulated(rate: str) -> None:
    task = task_of(
        document(
            {"a": 4, "b": 4},
            2,
            links=[{"between": ["a", "b"], **FAST, "node_pair_rate": "200Mbit", "rate": rate}],
            compute={"forward": "10ms", "activation": "1MiB"},
            training={"stages": 2, "microbatches": 8},
            variants=[{"name": "v", "schedule": "gpipe", "transport": {"connections": 4}}],
        )
    )
    variant = task.resolve(Candidate(4, 1, APART.runs))
    effects = effects_of(variant.transport)
    used = [
        bottleneck_of(
            task.topology,
            variant,
            simulate_variant(task.topology, variant, 2, effects=effects, symmetry=symmetry, one_part=symmetry),
            1,
        ).link
        for symmetry in (True, False)
    ]
    assert used[0] is not None
    assert used[0] == used[1]


def test_where_a_single_microbatch_travels_far_the_latency_of_the_link_is_the_bottleneck() -> None:
    bottleneck, _, time_s = found({**FAST, "latency": "400ms"}, {"model": "ideal"}, microbatches=1)
    link = bottleneck.path[0]
    assert link.part == Part("link", ("a", "b"))
    assert link.latency * time_s == pytest.approx(0.8)
    assert link.latency > 0.9 * link.share


def test_where_gradients_are_large_their_all_reduce_is_the_bottleneck() -> None:
    compute = {"forward": "1ms", "activation": "1KiB", "gradient": "4GiB"}
    task = task_of(document({"a": 4}, 2, compute=compute, variants=[{"name": "v", "schedule": "gpipe"}]))
    variant = task.resolve(Candidate(2, 1, (("a", 2),)))
    bottleneck = bottleneck_of(task.topology, variant, simulate_variant(task.topology, variant, 2), 1)
    assert bottleneck.path[0].part.kind == "all_reduce"
    assert bottleneck.path[0].share > 0.9


def test_a_trunk_counts_the_bytes_of_all_its_node_pairs() -> None:
    links = [{"between": ["a", "b"], **FAST, "node_pair_rate": "200Mbit", "rate": "300Mbit"}]
    compute = {"forward": "1ms", "activation": "1MiB"}
    training = {"stages": 2, "microbatches": 20}
    variants = [{"name": "v", "schedule": "gpipe", "transport": {"connections": 4}}]
    content = document({"a": 2, "b": 2}, 2, links=links, compute=compute, training=training, variants=variants)
    task = task_of(content)
    variant = task.resolve(Candidate(2, 1, (("a", 1), ("b", 1))))
    bottleneck = bottleneck_of(task.topology, variant, simulate_variant(task.topology, variant, 2), 1)
    assert bottleneck.link is not None
    assert (bottleneck.link.capacity, bottleneck.link.capacity_bps) == ("trunk", 300e6)


def test_a_single_datacenter_has_no_link() -> None:
    task = task_of(document({"a": 2}, 2, variants=[{"name": "v", "schedule": "gpipe"}]))
    variant = task.resolve(Candidate(1, 1, (("a", 2),)))
    assert bottleneck_of(task.topology, variant, simulate_variant(task.topology, variant, 2), 1).link is None


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "varuna", "atlas", "zb-h1"])
@pytest.mark.parametrize("seed", range(4))
def test_the_parts_of_the_critical_path_add_up_to_all_of_the_time(schedule: str, seed: int) -> None:
    task = random_task(seed, schedule)
    for candidate in greedy_candidates(search_space(task)):
        variant = task.resolve(candidate)
        path = bottleneck_of(task.topology, variant, simulate_variant(task.topology, variant, 3), 1).path
        assert sum(each.share for each in path) == pytest.approx(1.0, abs=1e-9)
        assert all(each.latency <= each.share for each in path)
        assert list(path) == sorted(path, key=lambda each: -each.share)


def test_a_path_may_begin_on_a_link_that_it_does_not_cross_again() -> None:
    task = random_task(38, "zb-h1", most_gpus=3)
    variant = task.resolve(greedy_candidates(search_space(task))[0])
    path = bottleneck_of(task.topology, variant, simulate_variant(task.topology, variant, 3), 2).path
    assert sum(each.share for each in path) == pytest.approx(1.0, abs=1e-9)
    assert [(each.part.kind, each.latency) for each in path if each.part.kind == "link"] == [("link", 0.0)]
