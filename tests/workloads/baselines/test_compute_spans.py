import time
from pathlib import Path

import pytest

from results.records.span_log import NO_MICROBATCH, Span, SpanLog, SpanLogHeader, read_span_log
from workloads.baselines.compute_spans import ComputeSpans

HEADER = SpanLogHeader(rank=0, host="east-0", datacenter="east", gpu=0, pipeline=0, stage=0)


def test_spans_are_measured_in_order_since_the_epoch_and_written_at_each_flush(tmp_path: Path) -> None:
    log = SpanLog(tmp_path / "spans", HEADER)
    epoch_ns = time.monotonic_ns()
    spans = ComputeSpans(log, epoch_ns)
    spans.begin(0)
    with spans.measured("forward", 3):
        pass
    spans.record("backward", 3, epoch_ns + 5_000_000_000, epoch_ns + 6_000_000_000)
    spans.flush(None)
    spans.begin(1)
    with spans.measured("optimizer"):
        pass
    spans.flush(2.5)
    contents = read_span_log(tmp_path / "spans")
    forward, backward, optimizer = contents.spans
    assert (forward.kind, forward.iteration, forward.microbatch) == ("forward", 0, 3)
    assert 0 <= forward.start_ns <= forward.end_ns
    assert backward == Span("backward", 0, 3, 5_000_000_000, 6_000_000_000)
    assert (optimizer.kind, optimizer.iteration, optimizer.microbatch) == ("optimizer", 1, NO_MICROBATCH)
    assert contents.losses == ((1, 2.5),)


def test_a_span_that_is_extended_lasts_until_then(tmp_path: Path) -> None:
    spans = ComputeSpans(SpanLog(tmp_path / "spans", HEADER), epoch_ns := time.monotonic_ns())
    spans.begin(0)
    with spans.measured("forward", 0):
        pass
    before_ns = time.monotonic_ns() - epoch_ns
    spans.extend()
    spans.flush(None)
    (forward,) = read_span_log(tmp_path / "spans").spans
    assert forward.end_ns >= before_ns


def test_a_block_that_fails_leaves_no_span(tmp_path: Path) -> None:
    spans = ComputeSpans(SpanLog(tmp_path / "spans", HEADER), time.monotonic_ns())
    with pytest.raises(RuntimeError, match="lost"), spans.measured("forward", 0):
        raise RuntimeError("lost")
    spans.flush(None)
    assert read_span_log(tmp_path / "spans").spans == ()
