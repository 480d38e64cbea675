"""Ranks that add up the gradients of several flushes before they step, as processes over loopback."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.workloads.loopback_ranks import Start, in_buckets
from tests.support.workloads.reference_training import relative_error, train_reference
from tests.support.workloads.synchronized_ranks import mean_losses
from tests.support.workloads.torch_configs import LEARNING_RATE, MICROBATCHES, SEED, TINY, make_torch_configs
from wanbed.results.records.span_log import read_span_log
from wanbed.workloads.kept_files import KeptFilesConfig
from wanbed.workloads.rank_config import RankConfig

PATIENCE_S, ITERATIONS, STAGES, PIPELINES = 300, 2, 2, 2


def in_flushes(plan: RankConfig, *, sums: bool = False) -> RankConfig:
    """The same rank with a flush for each microbatch."""
    shape = replace(plan.shape, flushes=MICROBATCHES, sums_flushes=sums)
    rings = replace(plan.links.rings, sums=MICROBATCHES if sums else 1)
    schedule = replace(plan.schedule, shape=shape)
    return replace(plan, schedule=schedule, links=replace(plan.links, rings=rings))


def plans_of(folder: Path) -> list[RankConfig]:
    folder.mkdir()
    plans = make_torch_configs(folder, STAGES, pipelines=PIPELINES, iterations=ITERATIONS, precision="fp32")
    return [replace(each, kept=KeptFilesConfig(gradients=str(folder / f"{each.rank}.npz"))) for each in plans]


def learnt(plans: list[RankConfig], start: Start) -> tuple[list[float], dict[int, dict[str, np.ndarray]]]:
    """The losses of each iteration, and the last gradients of each rank."""
    processes = [start(plan) for plan in plans]
    assert [process.wait(PATIENCE_S) for process in processes] == [0] * len(plans)
    gradients = {}
    for plan in plans:
        with np.load(str(plan.kept.gradients)) as found:
            gradients[plan.rank] = dict(found)
    return mean_losses(plans, ITERATIONS), gradients


@pytest.mark.parametrize("buckets", [0, 3])
def test_flushes_that_are_summed_once_learn_bit_by_bit_as_one_flush(tmp_path: Path, start: Start, buckets: int) -> None:
    # GPipe runs backwards in order of microbatches, so that gradients are added up in the same order.
    whole = learnt([in_buckets(each, buckets) for each in plans_of(tmp_path / "whole")], start)
    several = learnt([in_buckets(in_flushes(each), buckets) for each in plans_of(tmp_path / "several")], start)
    assert several[0] == whole[0]
    for rank, expected in whole[1].items():
        assert all((several[1][rank][name] == gradient).all() for name, gradient in expected.items())


def test_flushes_that_are_summed_each_learn_as_one_process(tmp_path: Path, start: Start) -> None:
    plans = [in_flushes(each, sums=True) for each in plans_of(tmp_path / "each")]
    losses, gradients = learnt(plans, start)
    reference = train_reference(
        TINY,
        pipelines=PIPELINES,
        microbatches=MICROBATCHES,
        iterations=ITERATIONS,
        seed=SEED,
        learning_rate=LEARNING_RATE,
        precision="fp32",
    )
    assert losses == pytest.approx(reference.losses, rel=1e-6)
    for pipeline in range(PIPELINES):
        own = gradients[STAGES * pipeline] | gradients[STAGES * pipeline + 1]
        assert relative_error(own, reference.gradients) < 1e-5
    for plan in plans:
        spans = read_span_log(Path(plan.process.span_log)).spans
        for iteration in range(ITERATIONS):
            sums = [span for span in spans if span.iteration == iteration and span.kind == "all_reduce"]
            computed = [span for span in spans if span.iteration == iteration and span.kind in {"forward", "backward"}]
            assert len(sums) == MICROBATCHES
            assert not any(
                each.start_ns < span.end_ns and span.start_ns < each.end_ns for span in computed for each in sums
            )
            for flush, each in enumerate(sorted(sums, key=lambda span: span.start_ns)):
                before = [span.microbatch for span in computed if span.end_ns <= each.start_ns]
                assert {*before} == set(range(flush + 1))


def test_sums_that_the_shape_does_not_ask_for_are_refused(tmp_path: Path) -> None:
    (plan, *_) = plans_of(tmp_path / "plans")
    with pytest.raises(ValueError, match=r"links\.rings\.sums: 3, where the shape has 1"):
        replace(plan, links=replace(plan.links, rings=replace(plan.links.rings, sums=3)))
    with pytest.raises(ValueError, match="sums: 3 in an iteration, of whole gradients: give 1 or more, and no buckets"):
        in_buckets(in_flushes(plan, sums=True), 2)
