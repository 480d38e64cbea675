import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanbed.workloads.compute.replay import ReplayCompute, ReplayCosts, ReplayDurations, ReplaySizes
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.transport.receive_buffers import BufferPool


def nothing() -> None:
    pass


@given(duration_ns=st.integers(0, 3_000_000))
@settings(max_examples=30, deadline=None)
def test_an_action_lasts_no_less_than_its_duration(duration_ns: int) -> None:
    compute = ReplayCompute(ReplayCosts(ReplayDurations(duration_ns, 0)), nothing)
    before_ns = time.monotonic_ns()
    start_ns, end_ns = compute.perform(Action(ActionKind.FORWARD, 0))
    assert before_ns <= start_ns
    assert start_ns + duration_ns <= end_ns <= time.monotonic_ns()


@pytest.mark.parametrize(
    ("kind", "duration_ns"),
    [
        (ActionKind.FORWARD, 1_000_000),
        (ActionKind.BACKWARD, 5_000_000),
        (ActionKind.RECOMPUTE, 9_000_000),
        (ActionKind.BACKWARD_INPUT, 3_000_000),
        (ActionKind.BACKWARD_WEIGHT, 1_500_000),
    ],
)
def test_each_kind_of_action_has_its_own_duration(kind: ActionKind, duration_ns: int) -> None:
    slept: list[float] = []
    compute = ReplayCompute(
        ReplayCosts(ReplayDurations(1_000_000, 5_000_000, 9_000_000, 3_000_000, 1_500_000)), nothing
    )
    with pytest.MonkeyPatch.context() as patch:
        clock = iter([0, 0, duration_ns])
        patch.setattr(time, "monotonic_ns", lambda: next(clock))
        patch.setattr(time, "sleep", slept.append)
        assert compute.perform(Action(kind, 0)) == (0, duration_ns)
    assert slept == [duration_ns / 1e9]


def test_a_long_action_ends_when_the_check_raises() -> None:
    def fail() -> None:
        raise ConnectionError("the peer is gone")

    with pytest.raises(ConnectionError):
        ReplayCompute(ReplayCosts(ReplayDurations(10**15, 0)), fail).perform(Action(ActionKind.FORWARD, 0))


def test_a_late_wake_up_within_a_long_action_does_not_prolong_it() -> None:
    now_ns = 0

    def oversleep(duration_s: float) -> None:
        nonlocal now_ns
        now_ns += round(duration_s * 1e9) + 1000

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic_ns", lambda: now_ns)
        patch.setattr(time, "sleep", oversleep)
        compute = ReplayCompute(ReplayCosts(ReplayDurations(60_000_000_000, 0)), nothing)
        assert compute.perform(Action(ActionKind.FORWARD, 0)) == (0, 60_000_001_000)


def test_a_negative_duration_is_refused_by_field() -> None:
    with pytest.raises(ValueError, match=r"^backward_ns: -1 is negative"):
        ReplayDurations(1, -1)


@given(backward_ns=st.integers(0, 10**12))
def test_the_parts_of_a_backward_are_half_of_it_each_where_they_are_not_given(backward_ns: int) -> None:
    durations = ReplayDurations(0, backward_ns)
    parts_ns = [durations.of(kind) for kind in (ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT)]
    assert sum(parts_ns) == durations.of(ActionKind.BACKWARD)
    assert abs(parts_ns[0] - parts_ns[1]) <= 1


def test_the_optimizer_takes_its_time_and_none_where_it_has_none() -> None:
    assert ReplayCompute(ReplayCosts(ReplayDurations(0, 0)), nothing).update() is None
    span = ReplayCompute(ReplayCosts(ReplayDurations(0, 0, optimizer_ns=1000)), nothing).update()
    assert span is not None
    assert span[1] - span[0] >= 1000


def replaying(pool: BufferPool) -> ReplayCompute:
    return ReplayCompute(ReplayCosts(ReplayDurations(0, 0), ReplaySizes(3000, 5000, 7000)), nothing, pool)


def test_messages_have_the_sizes_given_and_share_one_buffer_for_each() -> None:
    compute = replaying(BufferPool())
    for kind, size_bytes in ((MessageKind.ACTIVATION, 3000), (MessageKind.GRADIENT, 5000)):
        payloads = [compute.outgoing(Message(kind, microbatch)) for microbatch in range(3)]
        assert bytes(payloads[0]) == bytes(size_bytes)
        assert all(payload is payloads[0] for payload in payloads)
        compute.sent(Message(kind, 0))
        assert compute.outgoing(Message(kind, 3)) is payloads[0]


def test_received_payloads_may_be_back_in_the_pool() -> None:
    pool = BufferPool()
    compute = replaying(pool)
    payload = pool.take(3000)
    pool.give_back(payload)
    compute.arrived(Message(MessageKind.ACTIVATION, 0), payload)
    assert pool.take(3000) is payload
    assert pool.take(3000) is not payload


def test_gradients_are_a_buffer_apart_from_all_messages() -> None:
    compute = ReplayCompute(ReplayCosts(ReplayDurations(0, 0), ReplaySizes(4000, 4000, 4000)), nothing, BufferPool())
    gradients = compute.gradients()
    assert gradients is not None
    assert gradients is compute.gradients()
    gradients[:] = b"\x01" * 4000
    compute.add(gradients, gradients)
    assert bytes(gradients) == b"\x01" * 4000
    assert bytes(compute.outgoing(Message(MessageKind.ACTIVATION, 0))) == bytes(4000)


def test_without_gradients_there_is_nothing_to_sum() -> None:
    assert ReplayCompute(ReplayCosts(ReplayDurations(0, 0)), nothing).gradients() is None


def test_a_replay_learns_nothing() -> None:
    assert replaying(BufferPool()).loss() is None


def test_a_negative_size_is_refused_by_field() -> None:
    with pytest.raises(ValueError, match=r"^gradient_bytes: -1 is negative"):
        ReplaySizes(gradient_bytes=-1)


class NotedGpu:
    """A GPU that keeps what training told it, and when."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def claim(self) -> None:
        self.told.append(("claim",))

    def began(self, start_ns: int, iteration: int, kind: str, microbatch: int) -> None:
        self.told.append(("began", start_ns, iteration, kind, microbatch))

    def ended(self, end_ns: int) -> None:
        self.told.append(("ended", end_ns))


def test_a_shared_gpu_is_claimed_and_gets_the_times_of_each_action() -> None:
    gpu = NotedGpu()
    compute = ReplayCompute(ReplayCosts(ReplayDurations(1_000, 2_000, optimizer_ns=3_000)), nothing, gpu=gpu)
    compute.begin(4)
    forward = compute.perform(Action(ActionKind.FORWARD, 7))
    optimizer = compute.update()
    assert optimizer is not None
    assert gpu.told == [
        ("claim",),
        ("began", forward[0], 4, "forward", 7),
        ("ended", forward[1]),
        ("claim",),
        ("began", optimizer[0], 4, "optimizer", -1),
        ("ended", optimizer[1]),
    ]
