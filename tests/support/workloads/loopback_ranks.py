"""Plans of ranks that meet over loopback, and the processes that follow them."""

import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tests.support.workloads.forked_rank import ForkedRank
from wanbed.results.records.span_log import RankPlace, read_span_log
from wanbed.workloads.compute.backends.backend import ComputeConfig
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.replay import ReplayCosts, ReplayDurations, ReplaySizes
from wanbed.workloads.connected_config import RankProcessConfig
from wanbed.workloads.rank_config import RankConfig, ScheduleConfig
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.transport.links_config import (
    BoundariesConfig,
    BoundaryConfig,
    LinksConfig,
    RendezvousConfig,
    RingConfig,
    RingsConfig,
)
from wanbed.workloads.transport.peer import Peer

ROOT = Path(__file__).parents[3]
LOOPBACK = "127.0.0.1"
GPIPE = "wanbed.workloads.schedules.gpipe:GPipe"
REPLAY = "wanbed.workloads.compute.backends.replay_backend:ReplayBackend"
ONE_FORWARD_ONE_BACKWARD = "wanbed.workloads.schedules.one_forward_one_backward:OneForwardOneBackward"
PATIENCE_S = 60
MILLISECOND_NS = 1_000_000


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody listens on, all different, below those that the kernel gives away."""
    ports: list[int] = []
    while len(ports) < count:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            ports += [] if port in ports else [port]
    return ports


def connections_at(port: int) -> int:
    """Return how many connections whoever listens at a port of the loopback address has accepted or will."""
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    address = f"{int.from_bytes(socket.inet_aton(LOOPBACK), 'little'):08X}:{port:04X}"
    return sum(local == address and state == "01" for _, local, _, state, *_ in sockets)


def boundary_bytes(boundary: int) -> int:
    """Size of what lies between the stages ``boundary`` and ``boundary + 1``."""
    return (boundary + 1) * 300_000


def make_configs(
    folder: Path,
    shape: PipelineShape,
    pipelines: int = 1,
    *,
    schedule: str = ONE_FORWARD_ONE_BACKWARD,
    iterations: int = 2,
    **changes: object,
) -> list[RankConfig]:
    """Configs of ranks with one stage each; several pipelines are one DP-cell that shares everything,
    and 100,000 bytes of gradients are summed."""
    stages, token = shape.stages, secrets.token_hex(16)
    ports, epoch_ns = free_ports(stages * pipelines), time.monotonic_ns()

    def boundary(pipeline: int, stage: int, step: int) -> BoundaryConfig:
        mates = tuple(mate * stages + stage for mate in range(pipelines)) if pipelines > 1 else ()
        return BoundaryConfig(pipeline * stages + stage + step, boundary_bytes(stage if step > 0 else stage - 1), mates)

    plans = []
    for rank in range(stages * pipelines):
        pipeline, stage = divmod(rank, stages)
        replicas = tuple(mate * stages + stage for mate in range(pipelines))
        peers = {*replicas, *({rank - 1} if stage else ()), *({rank + 1} if stage + 1 < stages else ())} - {rank}
        plan = RankConfig(
            place=RankPlace(rank, f"host-{rank}", "east", 0, pipeline, stage),
            process=RankProcessConfig(str(folder / f"rank-{rank}.spans"), epoch_ns),
            iterations=iterations,
            schedule=ScheduleConfig(schedule, shape),
            compute=ComputeConfig(
                backend=REPLAY,
                costs=ReplayCosts(
                    ReplayDurations(
                        2 * MILLISECOND_NS, 4 * MILLISECOND_NS, MILLISECOND_NS if shape.recomputes(stage) else 0
                    ),
                    ReplaySizes(
                        boundary_bytes(stage) if stage + 1 < stages else 0,
                        boundary_bytes(stage - 1) if stage else 0,
                        100_000 if pipelines > 1 else 0,
                    ),
                ),
                computed=ComputedStage(stages, stage, pipelines, pipeline, shape.microbatches),
            ),
            links=LinksConfig(
                rank=rank,
                pipeline=pipeline,
                stage=stage,
                peers=tuple(
                    Peer(peer, f"host-{peer}", LOOPBACK, ports[peer] if peer > rank else None, 3)
                    for peer in sorted(peers)
                ),
                iterations=iterations,
                boundaries=BoundariesConfig(
                    boundary(pipeline, stage, -1) if stage else None,
                    boundary(pipeline, stage, +1) if stage + 1 < stages else None,
                    shape.microbatches,
                ),
                rings=RingsConfig((RingConfig(replicas),) if pipelines > 1 else ()),
            ),
            rendezvous=RendezvousConfig(LOOPBACK, ports[rank], token),
        )
        plans.append(replace(plan, **changes))  # type: ignore[arg-type]
    return plans


def with_costs(plan: RankConfig, **changes: object) -> RankConfig:
    """The same rank with other durations or sizes."""
    costs = replace(plan.compute.costs, **changes)  # type: ignore[arg-type]
    return replace(plan, compute=replace(plan.compute, costs=costs))


def in_buckets(plan: RankConfig, buckets: int) -> RankConfig:
    """The same rank with gradients that are summed in so many buckets."""
    return replace(plan, links=replace(plan.links, rings=replace(plan.links.rings, buckets=buckets)))


def with_norm(plans: Sequence[RankConfig]) -> list[RankConfig]:
    """The same ranks with optimizer steps that wait for all of them, in a ring in order of their numbers."""
    ring, found = RingConfig(tuple(plan.rank for plan in plans), 3), []
    for plan in plans:
        peers = {peer.rank: peer for peer in plan.links.peers}
        for rank in set(ring.neighbours(plan.rank)) - set(peers):
            port = plans[rank].rendezvous.listen_port if rank > plan.rank else None
            peers[rank] = Peer(rank, f"host-{rank}", LOOPBACK, port, 3)
        rings = replace(plan.links.rings, norm=ring)
        links = replace(plan.links, peers=tuple(peers[rank] for rank in sorted(peers)), rings=rings)
        found.append(replace(plan, links=links))
    return found


def endless(plan: RankConfig) -> RankConfig:
    """The same rank with a first forward that never ends."""
    return with_costs(plan, durations=ReplayDurations(10**15, 1))


def coming_back(plan: RankConfig, gatherer: RankConfig) -> RankConfig:
    """The same rank as it joins a training under way, whose star that rank gathers."""
    links = plan.links.joining({gatherer.rank: gatherer.rendezvous.listen_port})
    process = replace(plan.process, span_log=f"{plan.process.span_log}-again")
    return replace(plan, links=links, process=process)


def done(plan: RankConfig) -> int:
    """The last iteration that a rank has logged, -1 for none."""
    path = Path(plan.process.span_log)
    return max((span.iteration for span in read_span_log(path).spans), default=-1) if path.exists() else -1


Start = Callable[[RankConfig], "subprocess.Popen[str] | ForkedRank"]


def outcome(process: "subprocess.Popen[str] | ForkedRank") -> tuple[int | None, str]:
    """Exit status and standard error."""
    _, errors = process.communicate(timeout=PATIENCE_S)
    return process.returncode, errors
