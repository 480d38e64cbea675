import time
from pathlib import Path

import pytest

from tests.support.workloads.hostile_gpu.gpu import HostileGpu
from wanbed.results.records.span_log import NO_MICROBATCH, RankPlace, SpanLog, read_span_log
from wanbed.workloads.baselines.compute_spans import ComputeSpans, EventMarks, HostMarks

HEADER = RankPlace(rank=0, host="east-0", datacenter="east", gpu=0, pipeline=0, stage=0)


def test_spans_are_measured_in_order_since_the_epoch_and_written_at_each_flush(tmp_path: Path) -> None:
    log = SpanLog(tmp_path / "spans", HEADER)
    epoch_ns = time.monotonic_ns()
    spans = ComputeSpans(log, epoch_ns)
    spans.begin(0)
    with spans.measured("forward", 3):
        pass
    with spans.measured("backward", 3):
        pass
    spans.flush(None)
    spans.begin(1)
    with spans.measured("optimizer"):
        pass
    spans.flush(2.5)
    contents = read_span_log(tmp_path / "spans")
    forward, backward, optimizer = contents.spans
    assert (forward.kind, forward.iteration, forward.microbatch) == ("forward", 0, 3)
    assert 0 <= forward.start_ns <= forward.end_ns <= backward.start_ns <= backward.end_ns
    assert (backward.kind, backward.iteration, backward.microbatch) == ("backward", 0, 3)
    assert (optimizer.kind, optimizer.iteration, optimizer.microbatch) == ("optimizer", 1, NO_MICROBATCH)
    assert contents.losses == ((1, 2.5),)


class CountedMarks(HostMarks):
    """Marks 10 s, 20 s and so on."""

    def __init__(self) -> None:
        self.count = 0

    def mark(self) -> int:
        self.count += 1
        return self.count * 10_000_000_000


def test_a_span_may_start_later_and_stop_before_or_after_its_block(tmp_path: Path) -> None:
    spans = ComputeSpans(SpanLog(tmp_path / "spans", HEADER), 0, CountedMarks())
    spans.begin(0)
    with spans.measured("forward", 0):  # 10 s
        spans.restart()
        spans.stop()
        spans.stop()
    with spans.measured("forward", 1):  # 50 s to 60 s
        pass
    spans.stop()
    spans.flush(None)
    assert [span[3:5] for span in read_span_log(tmp_path / "spans").spans] == [
        (20_000_000_000, 40_000_000_000),
        (50_000_000_000, 70_000_000_000),
    ]


def test_spans_of_a_gpu_are_those_between_its_events(tmp_path: Path) -> None:
    gpu = HostileGpu(speed=1.25)
    spans = ComputeSpans(SpanLog(tmp_path / "spans", HEADER), 0, EventMarks(gpu, gpu.host_clock_ns))
    for iteration in range(2):
        spans.begin(iteration)
        gpu.keep_busy(5_000_000)
        with spans.measured("forward", 0):
            gpu.keep_busy(1_000_000)
        spans.flush(None)
    forwards = read_span_log(tmp_path / "spans").spans
    assert spans.clock_error_ns < 1_000
    for forward in forwards:
        assert forward.end_ns - forward.start_ns == pytest.approx(1_000_000, abs=2 * spans.clock_error_ns)
    assert forwards[1].start_ns - forwards[0].end_ns >= 5_000_000


def test_a_block_that_fails_leaves_no_span(tmp_path: Path) -> None:
    spans = ComputeSpans(SpanLog(tmp_path / "spans", HEADER), time.monotonic_ns())
    with pytest.raises(RuntimeError, match="lost"), spans.measured("forward", 0):
        raise RuntimeError("lost")
    spans.flush(None)
    assert read_span_log(tmp_path / "spans").spans == ()
