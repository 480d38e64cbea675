"""How messages between virtual stages are numbered, and ranks of virtual stages as real processes over loopback."""

import secrets
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.workloads.loopback_ranks import LOOPBACK, REPLAY, Start, free_ports, outcome
from wanbed.results.records.span_log import RankPlace, read_span_log
from wanbed.workloads.compute.backends.backend import ComputeConfig
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.replay import ReplayCosts, ReplayDurations, ReplaySizes
from wanbed.workloads.connected_config import RankProcessConfig
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.rank_config import RankConfig, ScheduleConfig
from wanbed.workloads.schedules.pipeline_shape import PipelineShape, VirtualLayout, VirtualStages
from wanbed.workloads.schedules.schedule import load_schedule
from wanbed.workloads.transport.chunk_transport import ChunkMessages
from wanbed.workloads.transport.links_config import ExchangeConfig, LinksConfig, RendezvousConfig
from wanbed.workloads.transport.peer import Peer

MS = 1_000_000

INTERLEAVED = "wanbed.workloads.schedules.virtual.interleaved:InterleavedOneForwardOneBackward"

ZB_V = "wanbed.workloads.schedules.virtual.zero_bubble_v:ZeroBubbleV"


@given(st.integers(1, 6), st.integers(2, 4), st.integers(1, 9), st.sampled_from(VirtualLayout), st.data())
def test_both_ends_name_a_message_by_their_own_chunk(
    stages: int, chunks: int, microbatches: int, layout: VirtualLayout, data: st.DataObject
) -> None:
    virtual = VirtualStages(stages, chunks, layout)
    messages = ChunkMessages(virtual, microbatches)
    kind, step = data.draw(st.sampled_from([(MessageKind.ACTIVATION, 1), (MessageKind.GRADIENT, -1)]))
    sender = data.draw(st.integers(0, virtual.count - 2)) + (step < 0)
    stage, chunk = virtual.place(sender)
    own = Message(kind, data.draw(st.integers(0, microbatches - 1)), chunk)
    to_stage, number = messages.addressed(stage, own)
    assert (to_stage, messages.received(number).chunk) == virtual.place(sender + step)
    assert messages.received(number) == replace(own, chunk=messages.received(number).chunk)
    assert messages.sent(to_stage, number) == own
    assert messages.expected(to_stage, messages.received(number)) == (stage, number)
    sizes = messages.sizes(stage, to_stage, range(100, 100 + virtual.count))
    assert len(sizes) == 2 * chunks * microbatches
    assert sizes[number] == 100 + min(sender, sender + step)


def test_there_is_nothing_before_the_first_and_after_the_last_virtual_stage() -> None:
    messages = ChunkMessages(VirtualStages(2, 2, VirtualLayout.V_SHAPED), 3)
    for kind, chunk in ((MessageKind.GRADIENT, 0), (MessageKind.ACTIVATION, 1)):
        with pytest.raises(ValueError, match="there is no stage to send an "):
            messages.addressed(0, Message(kind, 0, chunk))


def configs(folder: Path, schedule: str, shape: PipelineShape) -> list[RankConfig]:
    """Configs of the ranks of one pipeline, whose boundary i carries 100,000 (i + 1) bytes."""
    stages, token, epoch_ns = shape.stages, secrets.token_hex(16), time.monotonic_ns()
    kind = load_schedule(schedule)
    assert kind.virtual_layout is not None
    virtual = VirtualStages(stages, shape.virtual_stages, kind.virtual_layout)
    sizes = [100_000 * (boundary + 1) for boundary in range(virtual.count - 1)]
    messages = ChunkMessages(virtual, shape.microbatches)
    pairs = {tuple(sorted(map(virtual.stage_of, pair))) for pair in pairwise(range(virtual.count))}
    ports = free_ports(stages)
    durations = ReplayDurations(2 * MS, 4 * MS)
    plans = []
    for rank in range(stages):
        peers = sorted({peer for pair in pairs if rank in pair for peer in pair} - {rank})
        numbers = [virtual.number(rank, chunk) for chunk in range(virtual.chunks)]
        chunks = tuple(
            ReplayCosts(durations, ReplaySizes(sizes[n] if n < len(sizes) else 0, sizes[n - 1] if n else 0))
            for n in numbers
        )
        plans.append(
            RankConfig(
                place=RankPlace(rank, f"host-{rank}", "east", gpu=0, pipeline=0, stage=rank),
                process=RankProcessConfig(str(folder / f"rank-{rank}.spans"), epoch_ns),
                iterations=2,
                schedule=ScheduleConfig(schedule, shape),
                compute=ComputeConfig(
                    backend=REPLAY,
                    costs=ReplayCosts(durations),
                    computed=ComputedStage(stages, rank, 1, 0, shape.microbatches, virtual),
                    chunks=chunks,
                ),
                links=LinksConfig(
                    rank=rank,
                    pipeline=0,
                    stage=rank,
                    peers=tuple(
                        Peer(peer, f"host-{peer}", LOOPBACK, ports[peer] if peer > rank else None, 2) for peer in peers
                    ),
                    iterations=2,
                    exchanges=tuple(
                        ExchangeConfig(
                            peer, messages.sizes(rank, peer, sizes), messages.sizes(peer, rank, sizes), connections=2
                        )
                        for peer in peers
                    ),
                ),
                rendezvous=RendezvousConfig(LOOPBACK, ports[rank], token),
            )
        )
    return plans


@pytest.mark.parametrize(
    ("schedule", "stages", "chunks"), [(INTERLEAVED, 2, 2), (INTERLEAVED, 3, 2), (ZB_V, 2, 2), (ZB_V, 1, 2)]
)
def test_ranks_of_virtual_stages_run_and_log_every_part(
    tmp_path: Path, start: Start, schedule: str, stages: int, chunks: int
) -> None:
    shape = PipelineShape(stages, 2 * stages, virtual_stages=chunks)
    plans = configs(tmp_path, schedule, shape)
    assert [outcome(process) for process in [start(plan) for plan in plans]] == [(0, "")] * stages
    kinds = ("forward", "backward") if schedule == INTERLEAVED else ("forward", "backward_input", "backward_weight")
    sent: Counter[object] = Counter()
    received: Counter[object] = Counter()
    for plan in plans:
        log = read_span_log(Path(plan.process.span_log))
        assert log.complete
        virtual = plan.compute.computed.virtual
        assert virtual is not None
        numbers = [virtual.number(plan.place.stage, chunk) for chunk in range(chunks)]
        computed = Counter((span.kind, span.iteration, span.microbatch, span.virtual_stage) for span in log.spans)
        for iteration in range(2):
            for number in numbers:
                for microbatch in range(shape.microbatches):
                    assert all(computed[kind, iteration, microbatch, number] == 1 for kind in kinds)
        for span in log.spans:
            step = 1 if span.tensor == "activation" else -1
            assert span.virtual_stage is not None
            if span.kind == "send":
                sent[span.tensor, span.iteration, span.microbatch, span.virtual_stage + step, span.size_bytes] += 1
            elif span.kind == "receive":
                received[span.tensor, span.iteration, span.microbatch, span.virtual_stage, span.size_bytes] += 1
                assert span.size_bytes == 100_000 * (min(span.virtual_stage, span.virtual_stage - step) + 1)
    assert sent == received
    # The turn of a V crosses nothing.
    boundaries = stages * chunks - 1 - (schedule == ZB_V)
    assert sum(sent.values()) == 2 * 2 * boundaries * shape.microbatches


def test_a_rank_refuses_virtual_stages_that_it_is_not_configured_for(tmp_path: Path) -> None:
    (plan, _) = configs(tmp_path, ZB_V, PipelineShape(2, 2, virtual_stages=2))
    with pytest.raises(ValueError, match=r"compute\.chunks: 0, where the shape has 2 virtual stages"):
        replace(plan, compute=replace(plan.compute, chunks=()))
    undivided = replace(plan.compute, computed=replace(plan.compute.computed, virtual=None))
    with pytest.raises(ValueError, match=r"compute\.computed\.virtual: None, where"):
        replace(plan, compute=undivided)
    with pytest.raises(ValueError, match=r"links\.boundaries\.following: stage 0 of 2 has one"):
        replace(plan, schedule=ScheduleConfig(ZB_V, PipelineShape(2, 2)), compute=replace(undivided, chunks=()))
