"""Replayed ranks that average over a star, as processes over loopback: one is killed, and the others go on."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.until import until_within
from tests.support.workloads.loopback_ranks import (
    MILLISECOND_NS,
    Start,
    coming_back,
    done,
    endless,
    make_configs,
)
from wanbed.results.records.span_log import SpanLogContents, read_span_log
from wanbed.workloads.compute.replay import ReplayCosts, ReplayDurations
from wanbed.workloads.rank_config import RankConfig
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.synchronization.synchronization import SumTopology, Synchronization
from wanbed.workloads.transport.links_config import RingsConfig, StarConfig

PART_BYTES, PATIENCE_S = 100_000, 60
ITERATIONS, JOINED = 10, 400


def configs(folder: Path, quorum: int | None, *, fragments: int = 1, delay: int = 0) -> list[RankConfig]:
    costs = ReplayCosts(ReplayDurations(10 * MILLISECOND_NS, 10 * MILLISECOND_NS))
    synchronization = Synchronization(
        2 * fragments, fragments=fragments, delay=delay, topology=SumTopology.STAR, quorum=quorum
    )
    sizes_bytes = (PART_BYTES,) * fragments
    star = StarConfig((0, 1, 2), sizes_bytes, synchronization.count(ITERATIONS), quorum, 3)
    found = []
    for plan in make_configs(folder, PipelineShape(1, 1), pipelines=3, iterations=ITERATIONS):
        peers = tuple(peer for peer in plan.links.peers if star.gatherer in {plan.rank, peer.rank})
        compute = replace(plan.compute, costs=costs, synchronization=synchronization, fragments_bytes=sizes_bytes)
        found.append(
            replace(plan, compute=compute, links=replace(plan.links, rings=RingsConfig(), peers=peers, star=star))
        )
    return found


def logs(plans: list[RankConfig]) -> list[SpanLogContents]:
    return [read_span_log(Path(plan.process.span_log)) for plan in plans]


def test_every_replica_takes_part_in_every_average(tmp_path: Path, start: Start) -> None:
    plans = configs(tmp_path, None)
    assert [process.wait(PATIENCE_S) for process in [start(plan) for plan in plans]] == [0] * 3
    gatherer, *others = logs(plans)
    assert [sorted(each.ranks) for each in gatherer.sums] == [[0, 1, 2]] * (ITERATIONS // 2)
    assert not any(log.sums for log in others)
    for log in (gatherer, *others):
        sums = [span for span in log.spans if span.kind == "all_reduce"]
        assert [span.iteration for span in sums] == list(range(1, ITERATIONS, 2))
        assert {span.size_bytes for span in sums} == {PART_BYTES}


def test_replicas_go_on_without_one_that_hangs_and_is_killed(tmp_path: Path, start: Start) -> None:
    plans = configs(tmp_path, 2)
    processes = [start(plan) for plan in (*plans[:2], endless(plans[2]))]
    # The others do not wait for it, and end only once it is gone.
    until_within(PATIENCE_S, lambda: done(plans[0]) == done(plans[1]) == ITERATIONS - 1)
    processes[2].kill()
    assert [process.wait(PATIENCE_S) for process in processes[:2]] == [0, 0]
    gatherer, other, killed = logs(plans)
    assert [lost.rank for lost in gatherer.lost] == [2]
    assert [sorted(each.ranks) for each in gatherer.sums] == [[0, 1]] * (ITERATIONS // 2)
    assert (gatherer.complete, other.complete, killed.complete) == (True, True, False)


def test_replicas_go_on_without_one_that_is_killed_while_they_train(tmp_path: Path, start: Start) -> None:
    plans = configs(tmp_path, 3)
    processes = [start(plan) for plan in (*plans[:2], endless(plans[2]))]
    # Their first average waits for all three.
    until_within(PATIENCE_S, lambda: done(plans[0]) == done(plans[1]) == 0)
    processes[2].kill()
    assert [process.wait(PATIENCE_S) for process in processes[:2]] == [0, 0]
    gatherer, *_ = logs(plans)
    assert [sorted(each.ranks) for each in gatherer.sums] == [[0, 1]] * (ITERATIONS // 2)


def test_without_a_quorum_a_killed_replica_ends_the_others(tmp_path: Path, start: Start) -> None:
    plans = configs(tmp_path, None)
    processes = [start(plan) for plan in (*plans[:2], endless(plans[2]))]
    until_within(PATIENCE_S, lambda: done(plans[0]) == done(plans[1]) == 0)
    processes[2].kill()
    assert [process.wait(PATIENCE_S) for process in processes[:2]] == [1, 1]


@pytest.mark.parametrize(("fragments", "delay"), [(1, 0), (2, 1)], ids=["diloco", "streaming"])
def test_a_replica_that_is_killed_comes_back_and_counts_again(
    tmp_path: Path, start: Start, fragments: int, delay: int
) -> None:
    plans = [
        replace(plan, iterations=JOINED, links=replace(plan.links, iterations=JOINED, star=joined_star(plan)))
        for plan in configs(tmp_path, 2, fragments=fragments, delay=delay)
    ]
    processes = [start(plan) for plan in plans]
    until_within(PATIENCE_S, lambda: done(plans[0]) > 2)
    processes[2].kill()
    again = start(coming_back(plans[2], plans[0]))
    assert [process.wait(PATIENCE_S) for process in (*processes[:2], again)] == [0, 0, 0]
    gatherer, other, killed = logs(plans)
    (back,) = logs([coming_back(plans[2], plans[0])])
    assert killed.joined is None
    assert back.joined is not None
    first = back.joined.iteration
    assert 2 < first < JOINED
    for log, begin in ((gatherer, 0), (other, 0), (back, first)):
        assert log.complete
        assert {span.iteration for span in log.spans if span.kind == "forward"} == set(range(begin, JOINED))
    # It takes every average from then on, and gives its part to some.
    sums = [span.iteration for span in back.spans if span.kind == "all_reduce"]
    assert sums == [iteration for iteration in range(1, JOINED, 2) if iteration >= first]
    assert any(2 in each.ranks for each in gatherer.sums if each.number > first // 2 + 1)
    assert [lost.rank for lost in gatherer.lost] == [2]


def joined_star(plan: RankConfig) -> StarConfig:
    assert plan.links.star is not None
    return replace(plan.links.star, sums=JOINED // 2, state_bytes=2 * sum(plan.links.star.sizes_bytes))
