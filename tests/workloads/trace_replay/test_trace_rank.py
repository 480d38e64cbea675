"""Ranks of a trace as real processes over loopback."""

import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.workloads.loopback_ranks import LOOPBACK, MILLISECOND_NS, ROOT, free_ports, outcome
from wanbed.ground.dataclass_json import read_config
from wanbed.results.records.span_log import RankPlace, Span, read_span_log
from wanbed.workloads.connected_config import RankProcessConfig
from wanbed.workloads.trace_replay.replayed_trace import TraceNode, WorkKind
from wanbed.workloads.trace_replay.trace_rank_config import TraceRankConfig
from wanbed.workloads.transport.links_config import (
    ExchangeConfig,
    LinksConfig,
    RendezvousConfig,
    RingConfig,
    RingsConfig,
)
from wanbed.workloads.transport.peer import Peer

GPU, CPU, SEND, RECEIVE, COLLECTIVE = (
    WorkKind.GPU,
    WorkKind.CPU,
    WorkKind.SEND,
    WorkKind.RECEIVE,
    WorkKind.COLLECTIVE,
)
ITERATIONS = 2
SMALL, LARGE = 1_000, 3_000_000


def computed(duration_ms: int, *after: int, kind: WorkKind = GPU) -> TraceNode:
    """Each computation's microbatch is its duration, by which tests tell them apart."""
    return TraceNode(kind, after, duration_ms * MILLISECOND_NS, "forward" if kind is GPU else "", duration_ms)


def moved(kind: WorkKind, peer: int, number: int, size_bytes: int, *after: int) -> TraceNode:
    return TraceNode(kind, after, peer=peer, number=number, size_bytes=size_bytes)


def summed(number: int, *after: int) -> TraceNode:
    return TraceNode(COLLECTIVE, after, span="all_reduce", number=number, group=0, size_bytes=300_000)


def halves(*after: int) -> tuple[TraceNode, TraceNode]:
    """A reduce-scatter, and then an all-gather of what each rank has of it."""
    (last,) = after
    return (
        TraceNode(COLLECTIVE, after, span="reduce_scatter", number=2, group=0, size_bytes=300_000),
        TraceNode(COLLECTIVE, (last + 1,), span="all_gather", number=3, group=0, size_bytes=100_000),
    )


RANKS = (
    (computed(4), moved(SEND, 2, 0, SMALL, 0), moved(SEND, 2, 1, LARGE, 0), summed(0, 0), summed(1, 3), *halves(4)),
    (summed(0), summed(1, 0), *halves(1), computed(1, 1)),
    (
        moved(RECEIVE, 0, 0, SMALL),
        moved(RECEIVE, 0, 1, LARGE),
        computed(30, kind=CPU),
        computed(5, 1),
        computed(2, 0),
        summed(0, 3),
        summed(1, 5),
        *halves(6),
    ),
)


def configs(folder: Path) -> list[TraceRankConfig]:
    token, ports, epoch_ns = secrets.token_hex(16), free_ports(3), time.monotonic_ns()
    messages = {(0, 2): (SMALL, LARGE)}

    def exchange(rank: int, peer: int) -> ExchangeConfig:
        return ExchangeConfig(peer, messages.get((rank, peer), ()), messages.get((peer, rank), ()), 2)

    return [
        TraceRankConfig(
            place=RankPlace(rank, f"host-{rank}", "east", gpu=0, pipeline=0, stage=rank),
            process=RankProcessConfig(str(folder / f"rank-{rank}.spans"), epoch_ns),
            nodes=nodes,
            iterations=ITERATIONS,
            links=LinksConfig(
                rank=rank,
                pipeline=0,
                stage=rank,
                peers=tuple(
                    Peer(peer, f"host-{peer}", LOOPBACK, ports[peer] if peer > rank else None, 2)
                    for peer in range(3)
                    if peer != rank
                ),
                rings=RingsConfig((RingConfig((0, 1, 2)),)),
                iterations=4 * ITERATIONS,
                exchanges=tuple(exchange(rank, peer) for peer in {0: (2,), 1: (), 2: (0,)}[rank]),
            ),
            rendezvous=RendezvousConfig(LOOPBACK, ports[rank], token),
        )
        for rank, nodes in enumerate(RANKS)
    ]


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Span, ...]]]:
    """The spans of each rank, of one trial."""
    folder = tmp_path_factory.mktemp("trace")
    written = configs(folder)
    processes = []
    for config in written:
        path = folder / f"config-{config.rank}.json"
        config.write(path)
        assert read_config(TraceRankConfig, path) == config
        command = [sys.executable, "-m", "wanbed.workloads.trace_replay.trace_rank", str(path)]
        processes.append(subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True))
    try:
        assert [outcome(process) for process in processes] == [(0, "")] * 3
        logs = [read_span_log(Path(config.process.span_log)) for config in written]
        assert all(log.complete for log in logs)
        yield [log.spans for log in logs]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def of_kind(spans: tuple[Span, ...], kind: str, iteration: int = 0) -> list[Span]:
    return [span for span in spans if (span.kind, span.iteration) == (kind, iteration)]


@pytest.mark.parametrize("iteration", range(ITERATIONS))
def test_messages_of_any_size_reach_their_rank(spans: list[tuple[Span, ...]], iteration: int) -> None:
    sent, received = of_kind(spans[0], "send", iteration), of_kind(spans[2], "receive", iteration)
    for found, peer in ((sent, "host-2"), (received, "host-0")):
        assert {(span.size_bytes, span.peer) for span in found} == {(SMALL, peer), (LARGE, peer)}


@pytest.mark.parametrize("iteration", range(ITERATIONS))
def test_computations_wait_for_what_they_follow(spans: list[tuple[Span, ...]], iteration: int) -> None:
    small, large = sorted(of_kind(spans[2], "receive", iteration), key=lambda span: span.size_bytes)
    ends_ns = {2: small.end_ns, 5: large.end_ns}
    for computation in of_kind(spans[2], "forward", iteration):
        assert computation.start_ns >= ends_ns[computation.microbatch]
        assert computation.end_ns - computation.start_ns >= computation.microbatch * MILLISECOND_NS
    (first,) = of_kind(spans[0], "forward", iteration)
    assert first.end_ns - first.start_ns >= 4 * MILLISECOND_NS
    assert all(span.start_ns >= first.end_ns for span in of_kind(spans[0], "send", iteration))


@pytest.mark.parametrize("iteration", range(ITERATIONS))
def test_all_reduces_follow_one_another_and_end_together(spans: list[tuple[Span, ...]], iteration: int) -> None:
    for rank in range(3):
        one, other = of_kind(spans[rank], "all_reduce", iteration)
        assert one.end_ns <= other.start_ns
        assert one.size_bytes == 300_000
    latest_ns = max(of_kind(spans[rank], "all_reduce", iteration)[0].start_ns for rank in range(3))
    assert all(of_kind(spans[rank], "all_reduce", iteration)[0].end_ns >= latest_ns for rank in range(3))


def test_a_gpu_computes_beside_its_cpu(spans: list[tuple[Span, ...]]) -> None:
    # The CPU is busy for 30 ms of every iteration, and is in no span.
    last_ns = max(span.end_ns for span in spans[2])
    assert {span.kind for span in spans[2]} == {
        "receive",
        "forward",
        "all_reduce",
        "reduce_scatter",
        "all_gather",
    }
    assert last_ns > 30 * MILLISECOND_NS


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"nodes": (TraceNode(GPU, (0,)),)}, "nodes.0.after"),
        ({"iterations": 9}, "links.iterations"),
        ({"place": RankPlace(7, "host-7", "east", 0, 0, 0)}, "links.rank"),
    ],
)
def test_a_configuration_that_does_not_fit_together_is_refused(
    tmp_path: Path, changes: dict[str, object], fault: str
) -> None:
    config = configs(tmp_path)[0]
    with pytest.raises(ValueError, match=fault):
        TraceRankConfig(**{**vars(config), **changes})  # type: ignore[arg-type]


def test_a_rank_with_collectives_and_no_ring_is_refused(tmp_path: Path) -> None:
    config = configs(tmp_path)[0]
    with pytest.raises(ValueError, match=r"^links\.rings: a rank with collectives is in the ring of its group$"):
        replace(config, links=replace(config.links, rings=RingsConfig()))


@pytest.mark.parametrize("iteration", range(ITERATIONS))
def test_halves_of_an_all_reduce_follow_it_and_say_what_they_are(spans: list[tuple[Span, ...]], iteration: int) -> None:
    for rank in range(3):
        (_, summing), (scatter,), (gather,) = (
            of_kind(spans[rank], kind, iteration) for kind in ("all_reduce", "reduce_scatter", "all_gather")
        )
        assert summing.end_ns <= scatter.start_ns <= scatter.end_ns <= gather.start_ns
        assert (scatter.size_bytes, gather.size_bytes) == (300_000, 100_000)
