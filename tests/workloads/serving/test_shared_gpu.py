"""One GPU with a clock that the test sets. A layer of any piece takes 1 ms."""

import pytest

from wanbed.workloads.bubbletea.bubble_filler import BubbleFiller
from wanbed.workloads.bubbletea.bubble_forecast import BubbleForecast
from wanbed.workloads.bubbletea.messages import BubbleReport, Piece, PieceDone
from wanbed.workloads.bubbletea.prefill_profile import PrefillProfile
from wanbed.workloads.bubbletea.prefill_settings import FillPolicy, PrefillSettings
from wanbed.workloads.serving.shared_gpu import PrefillSpan, SharedGpu

MS = 1_000_000

PROFILE = PrefillProfile(0.0, 1e4, 0.0, "test", measured=False)

PIECE = Piece(request=7, stage=0, chunk=0, tokens=100, prior_tokens=0, layers=4, last=True, prompt_tokens=100)

ITERATION_NS, ACTION_NS = 50 * MS, 10 * MS


class Clock:
    """A clock that the test sets. It counts how often it is read."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.waited_for = 0

    def __call__(self) -> int:
        self.waited_for += 1
        return self.now_ns


class PassingClock(Clock):
    """A clock that advances whenever it is read, so that a thread that waits for it makes progress."""

    def __call__(self) -> int:
        self.now_ns += MS // 4
        return self.now_ns


def gpu(clock: Clock, policy: FillPolicy) -> SharedGpu:
    settings = PrefillSettings(10**10, policy, switch_ns=0, warmup_iterations=2)
    return SharedGpu(3, BubbleFiller(BubbleForecast(settings), PROFILE, policy), clock)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def greedy(clock: Clock) -> SharedGpu:
    return gpu(clock, FillPolicy.GREEDY)


def test_nothing_runs_before_training_is_idle(clock: Clock, greedy: SharedGpu) -> None:
    greedy.enqueue(PIECE)
    assert greedy.advance() == []
    clock.now_ns = 10 * MS
    assert greedy.advance() == []
    greedy.idle()
    clock.now_ns = 14 * MS
    assert greedy.advance() == [PieceDone(7, 0, 0, 10 * MS, 14 * MS)]
    assert greedy.take_spans() == [PrefillSpan(7, 0, 10 * MS, 14 * MS)]


def test_a_run_ends_on_time_however_late_it_is_polled(clock: Clock, greedy: SharedGpu) -> None:
    greedy.enqueue(PIECE)
    greedy.idle()
    clock.now_ns = 90 * MS
    assert greedy.advance() == [PieceDone(7, 0, 0, 0, 4 * MS)]


def test_training_that_comes_after_the_run_waits_for_nothing(clock: Clock, greedy: SharedGpu) -> None:
    greedy.enqueue(PIECE)
    greedy.idle()
    clock.now_ns = 5 * MS
    greedy.claim()
    greedy.began(5 * MS, 0, "forward", 0)
    assert greedy.advance() == [PieceDone(7, 0, 0, 0, 4 * MS)]
    assert greedy.counts()["deadline_overruns"] == 0
    assert greedy.take_spans() == [PrefillSpan(7, 0, 0, 4 * MS)]


def test_training_waits_for_the_layer_under_way_and_the_time_it_really_took_is_counted() -> None:
    clock = PassingClock()
    shared = gpu(clock, FillPolicy.GREEDY)
    shared.enqueue(PIECE)
    shared.idle()
    clock.now_ns = 1_500_000
    shared.claim()
    (span,) = shared.take_spans()
    assert span.end_ns - span.start_ns >= 2 * MS
    assert span.end_ns <= clock.now_ns
    counts = shared.counts()
    assert counts["deadline_overruns"] == 1
    assert counts["overrun_ns"] == span.end_ns - (1_500_000 + MS // 4)
    assert shared.advance() == []


def test_the_layers_that_are_left_follow_when_training_waits_again() -> None:
    clock = PassingClock()
    shared = gpu(clock, FillPolicy.GREEDY)
    shared.enqueue(PIECE)
    shared.idle()
    clock.now_ns = 1_500_000
    shared.claim()
    shared.began(clock.now_ns, 0, "forward", 0)
    clock.now_ns += 10 * MS
    shared.ended(clock.now_ns)
    shared.idle()
    clock.now_ns += 10 * MS
    (done,) = shared.advance()
    first, second = shared.take_spans()
    assert isinstance(done, PieceDone)
    assert (first.end_ns - first.start_ns) // MS + (second.end_ns - second.start_ns) // MS == PIECE.layers
    assert done.ended_ns == second.end_ns


def test_a_planned_gpu_watches_first_then_runs_only_what_ends_before_training_is_back(clock: Clock) -> None:
    shared = gpu(clock, FillPolicy.PLANNED)
    shared.enqueue(PIECE)
    lines: list[PieceDone | BubbleReport] = []
    for iteration in range(6):
        clock.now_ns = iteration * ITERATION_NS
        shared.claim()
        shared.began(clock.now_ns, iteration, "forward", 0)
        clock.now_ns += ACTION_NS
        shared.ended(clock.now_ns)
        shared.idle()
        clock.now_ns += 5 * MS
        lines += shared.advance()
    reports = [message for message in lines if isinstance(message, BubbleReport)]
    assert reports
    assert all(report.gpu == 3 and report.bubbles == ((ACTION_NS, ITERATION_NS),) for report in reports)
    (done,) = [message for message in lines if isinstance(message, PieceDone)]
    assert done.started_ns >= 2 * ITERATION_NS + ACTION_NS
    assert shared.counts()["deadline_overruns"] == 0


def test_once_stopped_only_whole_layers_that_are_over_count(clock: Clock, greedy: SharedGpu) -> None:
    greedy.enqueue(PIECE)
    greedy.idle()
    clock.now_ns = 2_700_000
    greedy.stop()
    assert greedy.take_spans() == [PrefillSpan(7, 0, 0, 2 * MS)]
    clock.now_ns = 50 * MS
    assert greedy.advance() == []
    greedy.claim()
    assert greedy.take_spans() == []


def test_a_gpu_that_never_trains_reports_so_and_runs_at_once(clock: Clock, greedy: SharedGpu) -> None:
    greedy.never_trained()
    assert greedy.advance() == [BubbleReport(3, 0, 0, 0, ())]
    greedy.enqueue(PIECE)
    greedy.advance()
    clock.now_ns = 4 * MS
    assert greedy.advance() == [PieceDone(7, 0, 0, 0, 4 * MS)]
