"""Replayed ranks that train alone and synchronise seldom, as processes over loopback."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.workloads.loopback_ranks import MILLISECOND_NS, Start, make_configs
from wanbed.results.records.span_log import Span, read_span_log
from wanbed.workloads.compute.replay import ReplayCosts, ReplayDurations
from wanbed.workloads.rank_config import RankConfig
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.synchronization.synchronization import Synchronization

FRAGMENTS_BYTES, PATIENCE_S = (40_000, 60_000), 60


def configs(folder: Path, synchronization: Synchronization, iterations: int) -> list[RankConfig]:
    costs = ReplayCosts(ReplayDurations(20 * MILLISECOND_NS, 20 * MILLISECOND_NS))
    return [
        replace(
            plan,
            compute=replace(
                plan.compute, costs=costs, synchronization=synchronization, fragments_bytes=FRAGMENTS_BYTES
            ),
            links=replace(
                plan.links, rings=replace(plan.links.rings, synchronizations=synchronization.count(iterations))
            ),
        )
        for plan in make_configs(folder, PipelineShape(1, 1), pipelines=3, iterations=iterations)
    ]


def test_fragments_take_turns_and_overlap_with_the_iteration_beside_them(tmp_path: Path, start: Start) -> None:
    iterations = 9
    plans = configs(tmp_path, Synchronization(4, fragments=2, delay=1), iterations)
    assert [process.wait(PATIENCE_S) for process in [start(plan) for plan in plans]] == [0] * 3
    for plan in plans:
        spans = read_span_log(Path(plan.process.span_log)).spans
        sums = [span for span in spans if span.kind == "all_reduce"]
        assert [(span.iteration, span.size_bytes) for span in sums] == [
            (1, 40_000),
            (3, 60_000),
            (5, 40_000),
            (7, 60_000),
        ]
        for each in sums:
            assert ended(spans, each.iteration - 1) <= each.start_ns < ended(spans, each.iteration)


def ended(spans: list[Span], iteration: int) -> int:
    return max(span.end_ns for span in spans if span.kind == "backward" and span.iteration == iteration)


def test_a_rank_is_told_of_synchronisations_in_both_places_or_neither(tmp_path: Path) -> None:
    (plan, *_) = configs(tmp_path, Synchronization(2, 2), 4)
    with pytest.raises(ValueError, match=r"^links.rings.synchronizations: give them with compute.synchronization"):
        replace(plan, compute=replace(plan.compute, synchronization=None))
