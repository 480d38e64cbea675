"""Replicas of a small GPT that train alone and synchronise seldom, as processes over loopback."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from results.records.span_log import Span, read_span_log
from tests.support.workloads.loopback_ranks import Start
from tests.support.workloads.torch_configs import make_torch_configs
from workloads.rank_config import RankConfig
from workloads.synchronization.synchronization import Synchronization
from workloads.transport.links_config import BoundaryConfig

REPLICAS, PATIENCE_S = 2, 300


def train_synchronized(
    folder: Path, start: Start, synchronization: Synchronization, iterations: int, stages: int = 1
) -> tuple[list[float], dict[int, tuple[Span, ...]]]:
    """Train with two replicas; return the mean loss of each iteration, and the spans of each rank."""
    plans = [
        replace(
            plan,
            compute=replace(plan.compute, synchronization=synchronization),
            links=replace(
                plan.links,
                synchronizations=synchronization.count(iterations),
                previous=_own(plan.links.previous),
                following=_own(plan.links.following),
            ),
        )
        for plan in make_torch_configs(folder, stages, pipelines=REPLICAS, iterations=iterations)
    ]
    processes = [start(plan) for plan in plans]
    assert [process.wait(PATIENCE_S) for process in processes] == [0] * len(plans)
    return _losses(plans, iterations), {plan.rank: read_span_log(Path(plan.span_log)).spans for plan in plans}


def _own(boundary: BoundaryConfig | None) -> BoundaryConfig | None:
    """Return a boundary over which no other pipeline's messages go."""
    return None if boundary is None else replace(boundary, mates=())


def _losses(plans: list[RankConfig], iterations: int) -> list[float]:
    losses: dict[int, float] = defaultdict(float)
    for plan in plans:
        for iteration, loss in read_span_log(Path(plan.span_log)).losses:
            losses[iteration] += loss / REPLICAS
    return [losses[iteration] for iteration in range(iterations)]
