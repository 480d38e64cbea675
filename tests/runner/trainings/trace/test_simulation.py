"""Simulated replays of our own schedules' traces and of traces made by hand, and their periods."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.results.chakra.wire_format import rank_file
from tests.support.runner.called_wanbed import simulate_here
from tests.support.runner.chakra_traces import (
    all_reduce,
    computation,
    message,
    nodes_of,
    replay_document,
    write_trace,
)
from tests.support.runner.chakra_traces import spans_of as recorded_spans
from tests.support.runner.small_experiment import sweep_point
from tests.support.simulator.simulation_of import simulation_of
from wanbed.flow.line import FRAME_BYTES, PAYLOAD_BYTES
from wanbed.results.chakra.node import ChakraNode, CollectiveType, NodeType
from wanbed.results.chakra.rank_file import rank_bytes
from wanbed.runner.resolve.tcp_effects import IDEAL, TcpEffects
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.training import Pulse
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.workloads.transport.frame import HEADER_BYTES

SEND, RECEIVE = NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE

SCHEDULES = ("gpipe", "1f1b", "eager-1f1b", "varuna", "zb-h1", "atlas", "dp")

MS = 10**6


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Small trainings over a WAN, by every schedule."""
    schedule = draw(st.sampled_from(SCHEDULES))
    stages = 1 if schedule == "dp" else draw(st.integers(2, 4))
    pipelines = draw(st.integers(2, 3)) if schedule == "dp" else draw(st.integers(1, 2))
    millis = st.integers(1, 30).map(lambda value: f"{value}ms")
    return {
        "topology": {
            "datacenters": [{"name": f"dc{index}", "hosts": 6} for index in range(draw(st.integers(2, 3)))],
            "wan": {
                "latency": draw(st.sampled_from(["5ms", "40ms"])),
                "rate": draw(st.sampled_from(["unlimited", "30Mbit"])),
                "node_pair_rate": "50Mbit",
            },
        },
        "compute": {
            "forward": [draw(millis) for _ in range(stages)],
            "backward": [draw(millis) for _ in range(stages)],
            "recompute": draw(st.sampled_from(["0ms", "7ms"])),
            "optimizer": draw(st.sampled_from(["0ms", "3ms"])),
            **({"activation": [f"{draw(st.integers(1, 300))}KiB" for _ in range(stages - 1)]} if stages > 1 else {}),
            "gradient": draw(st.sampled_from(["1B", "200KiB"])),
        },
        "training": {
            "stages": stages,
            "pipelines": pipelines,
            "microbatches": draw(st.integers(1, 5)),
            "iterations": 2,
            "warmup": 0,
        },
        "variants": [
            {
                "name": "any",
                "schedule": schedule,
                "transport": {"connections": draw(st.sampled_from([1, 3])), "window": "64KiB"},
            }
        ],
    }


def lengths_ns(simulation: Simulation) -> list[int]:
    return [end_ns - begin_ns for begin_ns, end_ns in simulation.windows_ns]


@settings(max_examples=40)
@given(documents())
def test_a_replayed_iteration_takes_as_long_as_the_schedules(
    tmp_path_factory: pytest.TempPathFactory, document: Mapping[str, Any]
) -> None:
    point = sweep_point(document)
    variant = point.variants[0]
    # Of a trace no packets are followed.
    simulation = simulate_variant(point.topology, variant, 1, effects=TcpEffects(packets=False))
    nodes = nodes_of(variant, simulation, 0)
    # What another program reads has every computation, and both halves of every message.
    found = [node for rank in nodes.values() for node in rank_file(rank_bytes(rank))[1]]
    assert len(found) == len(simulation.spans.rank)
    folder = write_trace(tmp_path_factory.mktemp("trace"), nodes)
    replayed = simulation_of(replay_document(document, variant, folder, 1), 1)
    assert lengths_ns(replayed) == lengths_ns(simulation)
    assert np.array_equal(np.sort(replayed.spans.end_ns), np.sort(simulation.spans.end_ns))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1", "dp"])
def test_a_measured_iteration_is_repeated_iteration_after_iteration(tmp_path: Path, schedule: str) -> None:
    stages = 1 if schedule == "dp" else 2
    document: dict[str, Any] = {
        "topology": {"datacenters": [{"name": each, "hosts": 2} for each in "ab"], "wan": {"latency": "20ms"}},
        "compute": {"forward": "9ms", "optimizer": "2ms", "activation": "2MiB", "gradient": "4MB"},
        "training": {"stages": stages, "pipelines": 2, "microbatches": 4, "iterations": 3, "warmup": 0},
        "engine": "simulate",
        # Packets of a trace are not followed.
        "variants": [{"name": schedule, "schedule": schedule, "transport": {"model": "mean"}}],
    }
    if stages == 1:
        del document["compute"]["activation"]
    point = sweep_point(document)
    simulation = simulate_variant(point.topology, point.variants[0], 3)
    folder = write_trace(tmp_path, nodes_of(point.variants[0], simulation, 1))
    assert lengths_ns(simulation_of(replay_document(document, point.variants[0], folder, 3), 3)) == lengths_ns(
        simulation
    )


def document_of(folder: Path, iterations: int = 1) -> dict[str, Any]:
    """An experiment that replays the trace in that folder on two hosts in each of two datacenters."""
    return {
        "topology": {
            "datacenters": [{"name": each, "hosts": 2} for each in "ab"],
            "wan": {"latency": "20ms", "rate": "80Mbit"},
        },
        "compute": {"trace": str(folder)},
        "training": {"iterations": iterations, "warmup": 0},
        "variants": [{"name": "t"}],
    }


def replayed(
    folder: Path,
    ranks: Mapping[int, list[ChakraNode]],
    iterations: int = 1,
    effects: TcpEffects = IDEAL,
    pulse: Pulse | None = None,
) -> Simulation:
    return simulation_of(document_of(write_trace(folder, ranks), iterations), iterations, effects=effects, pulse=pulse)


def spans_of(simulation: Simulation, kind: str) -> list[tuple[int, int, int]]:
    """The rank, the start and the end of each span of a kind, in order of time, in milliseconds."""
    spans = simulation.spans
    own = spans.kind == KIND_CODES[kind]
    rows = zip(spans.rank[own].tolist(), spans.start_ns[own].tolist(), spans.end_ns[own].tolist(), strict=True)
    return sorted((rank, round(start / MS), round(end / MS)) for rank, start, end in rows)


def test_any_rank_sends_to_any_other_with_its_own_size(tmp_path: Path) -> None:
    # 80 Mbit/s carry 100 kB in 10 ms, and the other datacenter is 20 ms away.
    ranks = {
        0: [computation(0, 10_000), message(SEND, 1, (0, 3), 100_000, [0]), message(SEND, 2, (0, 3), 200_000, [0])],
        1: [computation(0, 1_000)],
        2: [computation(0, 1_000)],
        3: [
            message(RECEIVE, 0, (0, 3), 100_000),
            message(RECEIVE, 1, (0, 3), 200_000),
            computation(2, 5_000, [0]),
            computation(3, 5_000, [1]),
        ],
    }
    simulation = replayed(tmp_path, ranks)
    assert spans_of(simulation, "forward") == [(0, 0, 10), (1, 0, 1), (2, 0, 1), (3, 40, 45), (3, 60, 65)]
    assert simulation.windows_ns[0][1] == pytest.approx(65 * MS, rel=0.01)


def test_a_gpu_and_a_cpu_each_do_one_thing_at_a_time_the_lowest_id_first(tmp_path: Path) -> None:
    nodes = [
        computation(3, 10_000),
        computation(1, 20_000),
        computation(2, 15_000, is_cpu_op=True),
        computation(4, 1_000, [2]),
    ]
    simulation = replayed(tmp_path, {0: nodes}, iterations=2)
    assert spans_of(simulation, "forward") == [
        (0, 0, 20), (0, 20, 30), (0, 30, 31), (0, 31, 51), (0, 51, 61), (0, 61, 62)
    ]  # fmt: skip


def test_an_all_reduce_waits_for_all_ranks_and_computing_goes_on_beside_it(tmp_path: Path) -> None:
    ranks = {
        rank: [computation(0, 10_000 * (rank + 1)), all_reduce(1, 4_000, [0]), computation(2, 5_000, [0])]
        for rank in range(4)
    }
    simulation = replayed(tmp_path, ranks)
    reduced = spans_of(simulation, "all_reduce")
    assert [start for _, start, _ in reduced] == [10, 20, 30, 40]
    assert min(end for _, _, end in reduced) > 40
    assert spans_of(simulation, "forward")[-1] == (3, 40 + 0, 45)


@pytest.mark.parametrize(("whole_bytes", "latencies"), [(2_000_000, 1), (4_000, 2)])
@pytest.mark.parametrize("kind", [CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_GATHER])
def test_a_half_of_an_all_reduce_sends_three_quarters_of_the_data_once(
    tmp_path: Path, kind: CollectiveType, whole_bytes: int, latencies: int
) -> None:
    # Of an all-gather the size is what each of the four ranks gives.
    input_bytes = whole_bytes // 4 if kind is CollectiveType.ALL_GATHER else whole_bytes
    ranks = {rank: [computation(0, 10_000), all_reduce(1, input_bytes, [0], kind=kind)] for rank in range(4)}
    simulation = replayed(tmp_path, ranks)
    found = spans_of(simulation, kind.name.lower())
    assert [start for _, start, _ in found] == [10] * 4
    # Two of any three hops cross the WAN, which is 20 ms long. Segments of 50 ms follow one another without a gap.
    ended_ms = 10 + 3 / 4 * whole_bytes * 8 / 80e3 + latencies * 20
    assert max(end for _, _, end in found) == pytest.approx(ended_ms, abs=1)
    carried = sum(int(each.wire_bytes[-1]) for each in simulation.traffic)
    assert carried == pytest.approx(2 * 3 / 4 * whole_bytes)
    assert set(simulation.spans.size_bytes.tolist()) == {0, input_bytes}


def test_all_halves_of_one_group_are_one_ring_after_the_other(tmp_path: Path) -> None:
    ranks = {
        rank: [
            computation(0, 10_000),
            all_reduce(1, 2_000_000, [0], kind=CollectiveType.REDUCE_SCATTER),
            all_reduce(2, 500_000, [1], kind=CollectiveType.ALL_GATHER),
        ]
        for rank in range(4)
    }
    halves = replayed(tmp_path / "halves", ranks, iterations=2)
    whole = {rank: [computation(0, 10_000), all_reduce(1, 2_000_000, [0])] for rank in range(4)}
    once = replayed(tmp_path / "whole", whole, iterations=2)
    assert lengths_ns(halves)[0] == pytest.approx(lengths_ns(once)[0], rel=0.1)
    assert spans_of(halves, "all_gather")[0][1] >= spans_of(halves, "reduce_scatter")[0][2]


def test_groups_all_reduce_for_themselves(tmp_path: Path) -> None:
    ranks = {
        rank: [computation(0, 10_000 * (rank + 1)), all_reduce(1, 4_000, [0], group=f"{rank % 2}")] for rank in range(4)
    }
    ends = [end for _, _, end in spans_of(replayed(tmp_path, ranks), "all_reduce")]
    assert 30 < ends[0] < ends[1]
    assert ends[1] > 40


def test_a_message_takes_the_headers_of_its_frame_and_its_packets_along_where_they_count(tmp_path: Path) -> None:
    ranks: dict[int, list[ChakraNode]] = {rank: [computation(0, 1_000)] for rank in range(4)}
    ranks[0].append(message(SEND, 1, (0, 3), 100_000, [0]))
    ranks[3].append(message(RECEIVE, 1, (0, 3), 100_000))
    lasted_ns = {}
    for headers in (False, True):
        effects = TcpEffects(window=False, slow_start=False, headers=headers)
        spans = replayed(tmp_path / str(headers), ranks, effects=effects).spans
        (sent,) = np.flatnonzero(spans.kind == KIND_CODES["send"])
        lasted_ns[headers] = int(spans.end_ns[sent] - spans.start_ns[sent])
    assert lasted_ns[False] == 10 * MS
    # A byte takes 100 ns on the wire. There is a frame for each of a few connections.
    framed_bytes = lasted_ns[True] / 100 * PAYLOAD_BYTES / FRAME_BYTES
    frames = round((framed_bytes - 100_000) / HEADER_BYTES)
    assert 1 <= frames <= 16
    assert framed_bytes == pytest.approx(100_000 + frames * HEADER_BYTES, abs=0.1)


def test_an_all_reduce_waits_for_a_message_over_one_of_its_hops(tmp_path: Path) -> None:
    def reduced_ms(name: str, peer: int, message_bytes: int, *, answers: bool = False) -> int:
        ranks: dict[int, list[ChakraNode]] = {rank: [computation(0, 1_000)] for rank in range(4)}
        for one, other in ((0, peer), (peer, 0))[: 1 + answers]:
            ranks[one].append(message(SEND, 3 + one, (one, other), message_bytes, [0]))
            ranks[other].append(message(RECEIVE, 3 + one, (one, other), message_bytes))
        for rank in (0, 3):
            ranks[rank].append(all_reduce(9, 100_000, [0], group="over the WAN"))
        return max(end for _, _, end in spans_of(replayed(tmp_path / name, ranks), "all_reduce"))

    # Halves of 5 ms over 20 ms, there and back, after a computation of a millisecond.
    assert reduced_ms("beside", 1, 1_000_000) == 1 + 2 * (5 + 20)
    # A megabyte takes 100 ms, and what is queued behind it goes after it.
    assert reduced_ms("behind", 3, 1_000_000) >= 1 + 100 + 5 + 20
    assert reduced_ms("both ways", 3, 1_000_000, answers=True) >= 1 + 100 + 5 + 20


def test_all_reduces_of_one_group_with_two_sizes_share_its_hops(tmp_path: Path) -> None:
    def reduced_ms(name: str, *sizes_bytes: int) -> int:
        ranks: dict[int, list[ChakraNode]] = {rank: [computation(0, 1_000)] for rank in range(4)}
        for rank in (0, 3):
            ranks[rank] += [
                all_reduce(number, size_bytes, [0], group="over the WAN")
                for number, size_bytes in enumerate(sizes_bytes, 1)
            ]
        return max(end for _, _, end in spans_of(replayed(tmp_path / name, ranks), "all_reduce"))

    # Each sends a megabyte, which takes 100 ms.
    assert reduced_ms("one", 1_000_000) >= 100
    assert reduced_ms("two", 1_000_000, 1_000_001) >= 200


def test_a_pulse_tells_the_share_of_the_nodes_that_have_ended(tmp_path: Path) -> None:
    shares: list[float] = []
    # An instant ends one of 29 computations, of which there are 2,900.
    replayed(tmp_path, {0: [computation(number, 1_000) for number in range(29)]}, 100, pulse=shares.append)
    assert shares == [pytest.approx(1000 / 2900), pytest.approx(2000 / 2900)]


def test_a_message_of_a_later_iteration_waits_for_its_receiver_to_begin_it(tmp_path: Path) -> None:
    # The sender has a millisecond of work in each iteration, and the receiver 100, half of which needs the message.
    ranks = {
        0: [computation(0, 1_000), message(SEND, 1, (0, 1), 1_000, [0])],
        1: [computation(0, 50_000), message(RECEIVE, 1, (0, 1), 1_000), computation(2, 50_000, [1])],
    }
    spans = spans_of(replayed(tmp_path, ranks, iterations=3), "forward")
    assert [start for rank, start, _ in spans if rank == 0] == [0, 1, 2]
    assert [start for rank, start, _ in spans if rank == 1] == [0, 50, 100, 150, 200, 250]


@given(st.data())
@settings(max_examples=30)
def test_any_graph_of_any_ranks_ends_after_its_longest_chain(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    ranks: dict[int, list[ChakraNode]] = {rank: [computation(0, 1_000)] for rank in range(4)}
    for step in range(1, data.draw(st.integers(1, 8)) + 1):
        sender, receiver = data.draw(st.permutations(range(4)))[:2]
        after = st.lists(st.sampled_from([node.id for node in ranks[sender]]), max_size=2, unique=True)
        size_bytes = data.draw(st.integers(1, 50_000))
        ranks[sender].append(message(SEND, 10 * step, (sender, receiver), size_bytes, data.draw(after), tag=step))
        ranks[receiver].append(message(RECEIVE, 10 * step, (sender, receiver), size_bytes, tag=step))
        ranks[receiver].append(computation(10 * step + 1, 2_000, [10 * step]))
    if data.draw(st.booleans()):
        for nodes in ranks.values():
            nodes.append(all_reduce(1000, 5_000, [nodes[-1].id]))
    simulation = replayed(tmp_path_factory.mktemp("graph"), ranks, iterations=2)
    sends = 2 * sum(node.type == SEND for nodes in ranks.values() for node in nodes)
    assert len(spans_of(simulation, "send")) == len(spans_of(simulation, "receive")) == sends
    assert len(spans_of(simulation, "forward")) == 8 + sends
    busiest_us = max(sum(node.duration_us for node in nodes) for nodes in ranks.values())
    assert simulation.windows_ns[1][1] >= 2 * busiest_us * 1000


def test_a_message_is_labelled_as_the_trace_says_and_else_by_its_ranks(tmp_path: Path) -> None:
    ends = (0, 3)
    of_wanbed = {"wanbed_kind": "send"}
    sent, received = (message(kind, 1, ends, 1_000, tag=0) for kind in (SEND, RECEIVE))
    named = [
        replace(sent, name="send gradient 4", attributes={**sent.attributes, **of_wanbed}),
        replace(received, name="receive gradient 4", attributes={**received.attributes, "wanbed_kind": "receive"}),
    ]
    unnamed = [replace(message(kind, 2, ends, 2_000, tag=1), name="send activation") for kind in (SEND, RECEIVE)]
    ranks: dict[int, list[ChakraNode]] = {rank: [computation(0, 1_000)] for rank in range(4)}
    for rank, of_named, of_unnamed in zip(ends, named, unnamed, strict=True):
        ranks[rank] += [of_named, of_unnamed]
    point = sweep_point(document_of(write_trace(tmp_path, ranks)))
    found = recorded_spans(point.variants[0], simulate_variant(point.topology, point.variants[0], 1), 0)
    moved = {(span.kind, span.size_bytes, span.tensor) for span in found if span.kind in {"send", "receive"}}
    assert moved == {
        *((kind, 1_000, "gradient") for kind in ("send", "receive")),
        *((kind, 2_000, "0,3") for kind in ("send", "receive")),
    }


def summary_of(folder: Path, ranks: dict[int, list[ChakraNode]], iterations: int = 6, rate: str = "100Mbit") -> Any:
    """The summary of two ranks 10 ms apart."""
    folder.mkdir()
    write_trace(folder / "t", ranks)
    experiment = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "10ms", "rate": rate},
        },
        "compute": {"trace": "t"},
        "training": {"iterations": iterations, "warmup": 2},
        "variants": [{"name": "t", "transport": {"model": "ideal"}}],
    }
    (row,) = simulate_here(yaml.safe_dump(experiment), folder).summary.to_dict("records")
    return row


@pytest.mark.parametrize(("rate", "period_s"), [("100Mbit", 1.01), ("10Mbit", 10.01)])
def test_a_message_that_nobody_computes_on_is_part_of_its_iteration(tmp_path: Path, rate: str, period_s: float) -> None:
    # 10 ms, and then 12.5 MB.
    ends = (0, 1)
    ranks = {
        0: [computation(0, 10_000), message(SEND, 1, ends, 12_500_000, [0])],
        1: [message(RECEIVE, 0, ends, 12_500_000)],
    }
    row = summary_of(tmp_path / "parcel", ranks, rate=rate)
    assert row["iteration_time_s"] == pytest.approx(period_s)
    assert row["makespan_s"] == pytest.approx(period_s + 0.01), "and the message is on its way"


@pytest.mark.parametrize("iterations", [6, 60])
def test_a_rank_that_runs_ahead_makes_no_difference(tmp_path: Path, iterations: int) -> None:
    # The second rank takes 50 ms for what the first one makes in 10.
    ends = (0, 1)
    ranks = {
        0: [computation(0, 10_000), message(SEND, 1, ends, 1000, [0])],
        1: [message(RECEIVE, 0, ends, 1000), computation(1, 50_000, [0])],
    }
    row = summary_of(tmp_path / "ahead", ranks, iterations)
    assert row["iteration_time_s"] == pytest.approx(0.05)
    assert row["gpu_utilization"] == pytest.approx((10 + 50) / (2 * 50))
