"""Replicas of a small GPT that train alone and synchronise seldom, as processes over loopback."""

import signal
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from tests.support.until import until_within
from tests.support.workloads.loopback_ranks import Start, coming_back, connections_at, done
from tests.support.workloads.torch_configs import TINY, make_torch_configs
from wanbed.results.records.span_log import Span, read_span_log
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.rank_config import RankConfig
from wanbed.workloads.synchronization.synchronization import SumTopology, Synchronization, fragments_bytes
from wanbed.workloads.transport.links_config import BoundariesConfig, RingsConfig, StarConfig

REPLICAS, PATIENCE_S = 2, 300


def train_synchronized(
    folder: Path,
    start: Start,
    synchronization: Synchronization,
    iterations: int,
    *,
    stages: int = 1,
    replicas: int = REPLICAS,
) -> tuple[list[float], dict[int, tuple[Span, ...]]]:
    """Train with replicas over a ring or a star; return the mean loss of each iteration, and the spans of each rank."""
    if synchronization.topology is SumTopology.STAR:
        assert stages == 1
        plans = star_configs(folder, synchronization, iterations, replicas)
    else:
        plans = _ring_configs(folder, synchronization, iterations, stages, replicas)
    processes = [start(plan) for plan in plans]
    assert [process.wait(PATIENCE_S) for process in processes] == [0] * len(plans)
    spans = {plan.rank: read_span_log(Path(plan.process.span_log)).spans for plan in plans}
    return mean_losses(plans, iterations), spans


def star_configs(
    folder: Path, synchronization: Synchronization, iterations: int, replicas: int = REPLICAS, model: GptConfig = TINY
) -> list[RankConfig]:
    """Configs of replicas of one stage each, the first of which gathers. With a quorum a lost one may come back."""
    parameters = model.parameters(0, 1)
    sizes_bytes = fragments_bytes(parameters, synchronization.fragments, synchronization.wire)
    star = StarConfig(
        tuple(range(replicas)),
        sizes_bytes,
        synchronization.count(iterations),
        synchronization.quorum,
        connections=3,
        state_bytes=0 if synchronization.quorum is None else 2 * 4 * parameters,
    )
    plans = []
    for plan in make_torch_configs(folder, 1, pipelines=replicas, iterations=iterations, model=model):
        peers = tuple(peer for peer in plan.links.peers if star.gatherer in {plan.rank, peer.rank})
        compute = replace(plan.compute, synchronization=synchronization)
        plans.append(
            replace(plan, compute=compute, links=replace(plan.links, rings=RingsConfig(), peers=peers, star=star))
        )
    return plans


def lose_and_start_again(plans: list[RankConfig], start: Start) -> int:
    """Train with the replicas of a star to the end. Kill the last one while they do, and start it again.

    Return the iteration that it joins. The others stand still until it has come to their door, however long it takes to
    load what it needs.
    """
    processes = [start(plan) for plan in plans]
    until_within(PATIENCE_S, lambda: done(plans[0]) > 2)
    *others, lost = processes
    lost.kill()
    for process in others:
        process.send_signal(signal.SIGSTOP)
    back = coming_back(plans[-1], plans[0])
    again = start(back)
    until_within(PATIENCE_S, lambda: connections_at(plans[0].rendezvous.listen_port) > 0)
    for process in others:
        process.send_signal(signal.SIGCONT)
    assert [process.wait(PATIENCE_S) for process in (*others, again)] == [0] * len(plans)
    joined = read_span_log(Path(back.process.span_log)).joined
    assert joined is not None
    assert joined.iteration > 2
    return joined.iteration


def mean_losses(plans: list[RankConfig], iterations: int) -> list[float]:
    """Return the mean loss of each iteration over the replicas that the ranks have logged."""
    losses: dict[int, float] = defaultdict(float)
    replicas = len({plan.place.pipeline for plan in plans})
    for plan in plans:
        for iteration, loss in read_span_log(Path(plan.process.span_log)).losses:
            losses[iteration] += loss / replicas
    return [losses[iteration] for iteration in range(iterations)]


def _ring_configs(
    folder: Path, synchronization: Synchronization, iterations: int, stages: int, replicas: int
) -> list[RankConfig]:
    return [
        replace(
            plan,
            compute=replace(plan.compute, synchronization=synchronization),
            links=replace(
                plan.links,
                rings=replace(plan.links.rings, synchronizations=synchronization.count(iterations)),
                boundaries=_own(plan.links.boundaries),
            ),
        )
        for plan in make_torch_configs(folder, stages, pipelines=replicas, iterations=iterations)
    ]


def _own(boundaries: BoundariesConfig) -> BoundariesConfig:
    """Return boundaries over which no other pipeline's messages go."""
    both = {name: replace(boundary, mates=()) for name, boundary in boundaries.named}
    return BoundariesConfig(**both, microbatches=boundaries.microbatches)
