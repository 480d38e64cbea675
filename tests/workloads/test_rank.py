"""Ranks as real processes over loopback."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.workloads.loopback_ranks import (
    GPIPE,
    MILLISECOND_NS,
    ONE_FORWARD_ONE_BACKWARD,
    PATIENCE_S,
    ROOT,
    Start,
    in_buckets,
    make_configs,
    outcome,
    with_costs,
    with_norm,
)
from wanbed.results.records.span_log import SpanLogContents, read_span_log
from wanbed.workloads.compute.replay import ReplayDurations, ReplaySizes
from wanbed.workloads.rank_config import RankConfig
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.transport.links_config import BoundariesConfig, BoundaryConfig


def counted(log: SpanLogContents) -> Counter[tuple[str, int]]:
    return Counter((span.kind, span.iteration) for span in log.spans)


@pytest.mark.parametrize("schedule", [GPIPE, ONE_FORWARD_ONE_BACKWARD])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_every_rank_runs_and_logs_every_microbatch(tmp_path: Path, start: Start, stages: int, schedule: str) -> None:
    plans = make_configs(tmp_path, PipelineShape(stages, 4, recompute=True), schedule=schedule)
    processes = [start(plan) for plan in plans]
    assert [outcome(process) for process in processes] == [(0, "")] * stages
    for plan in plans:
        log = read_span_log(Path(plan.process.span_log))
        assert log.complete
        assert (log.header.rank, log.header.host, log.header.stage) == (plan.rank, plan.host, plan.place.stage)
        neighbours = [boundary for _, boundary in plan.links.boundaries.named]
        assert counted(log) == {
            (kind, iteration): 4 * times
            for iteration in (0, 1)
            for kind, times in (
                ("forward", 1),
                ("recompute", 1),
                ("backward", 1),
                ("send", len(neighbours)),
                ("receive", len(neighbours)),
            )
            if times
        }
        transfers = {(span.peer, span.size_bytes) for span in log.spans if span.kind in {"send", "receive"}}
        assert transfers == {(f"host-{boundary.rank}", boundary.transfer_bytes) for boundary in neighbours}
        computed = sorted((span.start_ns, span.end_ns) for span in log.spans if not span.peer)
        assert computed[0][0] >= 0
        assert all(end <= start_ns for (_, end), (start_ns, _) in pairwise(computed))


def test_replicas_share_their_links_and_sum_their_gradients_once_an_iteration(tmp_path: Path, start: Start) -> None:
    plans = make_configs(tmp_path, PipelineShape(2, 4), pipelines=3)
    assert [outcome(process) for process in [start(plan) for plan in plans]] == [(0, "")] * 6
    for plan in plans:
        log = read_span_log(Path(plan.process.span_log))
        sums = [span for span in log.spans if span.kind == "all_reduce"]
        assert [(span.iteration, span.microbatch, span.size_bytes) for span in sums] == [
            (0, -1, 100_000),
            (1, -1, 100_000),
        ]
        for span in sums:
            computed = [each for each in log.spans if each.kind == "backward" and each.iteration == span.iteration]
            assert max(each.end_ns for each in computed) <= span.start_ns
        received = {(span.peer, span.size_bytes) for span in log.spans if span.kind == "receive"}
        assert received == {(f"host-{plan.rank + (1 if plan.place.stage == 0 else -1)}", 300_000)}


def test_the_optimizer_runs_after_the_all_reduce(tmp_path: Path, start: Start) -> None:
    plans = [
        with_costs(plan, durations=replace(plan.compute.costs.durations, optimizer_ns=3_000_000))
        for plan in make_configs(tmp_path, PipelineShape(1, 2), pipelines=2)
    ]
    assert [outcome(process) for process in [start(plan) for plan in plans]] == [(0, "")] * 2
    for plan in plans:
        spans = read_span_log(Path(plan.process.span_log)).spans
        for iteration in (0, 1):
            (summed,) = [span for span in spans if (span.kind, span.iteration) == ("all_reduce", iteration)]
            (updated,) = [span for span in spans if (span.kind, span.iteration) == ("optimizer", iteration)]
            assert summed.end_ns <= updated.start_ns
            assert updated.end_ns - updated.start_ns >= 3_000_000


@pytest.mark.parametrize("pipelines", [1, 2])
def test_optimizers_that_wait_for_all_stages_run_after_every_backward(
    tmp_path: Path, start: Start, pipelines: int
) -> None:
    plans = [
        with_costs(plan, durations=replace(plan.compute.costs.durations, optimizer_ns=MILLISECOND_NS))
        for plan in with_norm(make_configs(tmp_path, PipelineShape(2, 4), pipelines=pipelines))
    ]
    assert [outcome(process) for process in [start(plan) for plan in plans]] == [(0, "")] * len(plans)
    spans = [span for plan in plans for span in read_span_log(Path(plan.process.span_log)).spans]
    for iteration in (0, 1):
        own = [span for span in spans if span.iteration == iteration]
        norms = [span for span in own if span.kind == "norm"]
        assert [span.size_bytes for span in norms] == [4] * len(plans)
        computed_ns = max(span.end_ns for span in own if span.kind in {"backward", "all_reduce"})
        assert min(span.start_ns for span in own if span.kind == "optimizer") >= computed_ns
        assert min(span.end_ns for span in norms) >= computed_ns


def test_effects_follow_their_causes_across_ranks(tmp_path: Path, start: Start) -> None:
    plans = make_configs(tmp_path, PipelineShape(2, 4), schedule=GPIPE)
    assert [outcome(process) for process in [start(plan) for plan in plans]] == [(0, "")] * 2
    first, second = (
        {
            (span.kind, span.iteration, span.microbatch): span
            for span in read_span_log(Path(plan.process.span_log)).spans
        }
        for plan in plans
    )
    for iteration in (0, 1):
        for microbatch in range(4):
            key = iteration, microbatch
            down = first["forward", *key], first["send", *key], second["receive", *key], second["forward", *key]
            back = second["backward", *key], second["send", *key], first["receive", *key], first["backward", *key]
            for computed, sent, received, used in (down, back):
                assert computed.end_ns <= sent.start_ns <= received.start_ns <= received.end_ns <= used.start_ns


def test_a_rank_loads_none_of_the_heavy_modules(tmp_path: Path) -> None:
    plan = make_configs(tmp_path, PipelineShape(1, 2))[0]
    plan.write(tmp_path / "plan.json")
    program = (
        "import sys, wanbed.workloads.rank\n"
        f"status = wanbed.workloads.rank.main([{str(tmp_path / 'plan.json')!r}])\n"
        "heavy = ('torch', 'pydantic', 'pandas', 'numpy', 'pyarrow', 'pyroute2', 'importlib.metadata')\n"
        "print(status, [name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n"


def with_boundaries(plan: RankConfig, boundaries: BoundariesConfig) -> RankConfig:
    return replace(plan, links=replace(plan.links, boundaries=boundaries))


def test_a_slow_stage_does_not_accumulate_payloads(tmp_path: Path, start: Start) -> None:
    # All 8 activations arrive while the first is computed. Two buffers are in use where one message overlaps the next.
    size_bytes = 32 * 2**20
    plans = make_configs(tmp_path, PipelineShape(2, 8), schedule=GPIPE, iterations=1)
    slow = with_costs(
        with_boundaries(plans[1], BoundariesConfig(previous=BoundaryConfig(0, size_bytes), microbatches=8)),
        durations=ReplayDurations(100 * MILLISECOND_NS, MILLISECOND_NS),
        sizes=ReplaySizes(0, size_bytes),
    )
    slow.write(tmp_path / "slow.json")
    program = (
        "import re, sys, wanbed.workloads.rank\n"
        "status = wanbed.workloads.rank.main(sys.argv[1:])\n"
        "print(status, re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1])\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "slow.json")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as receiving:
        fast = with_costs(
            with_boundaries(plans[0], BoundariesConfig(following=BoundaryConfig(1, size_bytes), microbatches=8)),
            sizes=ReplaySizes(size_bytes, 0),
        )
        assert outcome(start(fast)) == (0, "")
        status, peak_kib = receiving.communicate(timeout=PATIENCE_S)[0].split()
    assert status == "0"
    assert int(peak_kib) * 1024 < 4 * size_bytes


def test_buckets_are_summed_one_after_the_other_while_the_last_backward_computes(tmp_path: Path, start: Start) -> None:
    backward_ns, buckets = 200 * MILLISECOND_NS, 4
    plans = [
        with_costs(
            in_buckets(plan, buckets),
            durations=ReplayDurations(MILLISECOND_NS, backward_ns),
        )
        for plan in make_configs(tmp_path, PipelineShape(1, 2), pipelines=3)
    ]
    assert [outcome(process) for process in [start(plan) for plan in plans]] == [(0, "")] * 3
    for plan in plans:
        spans = read_span_log(Path(plan.process.span_log)).spans
        for iteration in (0, 1):
            own = [span for span in spans if span.iteration == iteration]
            sums = sorted((span for span in own if span.kind == "all_reduce"), key=lambda span: span.start_ns)
            last = max((span for span in own if span.kind == "backward"), key=lambda span: span.start_ns)
            assert [span.size_bytes for span in sums] == [25_000] * buckets
            assert all(earlier.end_ns <= later.start_ns for earlier, later in pairwise(sums))
            for number, span in enumerate(sums, 1):
                assert span.start_ns - last.start_ns >= backward_ns * number // buckets
            assert sums[0].start_ns < last.end_ns <= sums[-1].end_ns
