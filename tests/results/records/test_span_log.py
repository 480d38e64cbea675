import math
from multiprocessing import get_context
from pathlib import Path

import pytest

from wanbed.results.records.span_log import (
    DeviceRecord,
    RankPlace,
    Span,
    SpanLog,
    SpanLogError,
    SwappedGroup,
    SwappingRecord,
    read_span_log,
)

HEADER = RankPlace(rank=1, host="east-1", datacenter="east", gpu=0, pipeline=0, stage=1)
FORWARD = Span("forward", 0, 3, 1_000, 2_000)
SEND = Span("send", 0, 3, 2_000, 9_000, 33_554_432, "west-0")


def test_a_completed_log_reads_back_as_written(tmp_path: Path) -> None:
    log = SpanLog(tmp_path / "rank.spans", HEADER)
    log.record(FORWARD)
    log.flush()
    log.record(SEND)
    log.complete()
    contents = read_span_log(tmp_path / "rank.spans")
    assert contents.header == HEADER
    assert contents.spans == (FORWARD, SEND)
    assert contents.complete


def test_a_log_has_its_header_as_soon_as_it_exists(tmp_path: Path) -> None:
    logs = [tmp_path / f"{number}.spans" for number in range(200)]
    writer = get_context("fork").Process(target=lambda: [SpanLog(log, HEADER) for log in logs])
    writer.start()
    for log in logs:
        while not log.exists():
            assert writer.is_alive() or log.exists()
        assert read_span_log(log).header == HEADER
    writer.join()


def test_a_rank_that_was_killed_leaves_every_span_it_flushed(tmp_path: Path) -> None:
    log = SpanLog(tmp_path / "rank.spans", HEADER)
    log.record(FORWARD)
    log.flush()
    with (tmp_path / "rank.spans").open("a") as file:
        file.write('["send",0,3,20')
    contents = read_span_log(tmp_path / "rank.spans")
    assert contents.spans == (FORWARD,)
    assert not contents.complete


def test_losses_read_back_to_the_last_bit_in_the_order_of_their_iterations(tmp_path: Path) -> None:
    log = SpanLog(tmp_path / "rank.spans", HEADER)
    log.record(FORWARD)
    log.record_loss(0, 0.1 + 0.2)
    log.flush()
    log.record_loss(1, 5.0)
    log.record(SEND)
    log.complete()
    contents = read_span_log(tmp_path / "rank.spans")
    assert contents.losses == ((0, 0.1 + 0.2), (1, 5.0))
    assert contents.spans == (FORWARD, SEND)
    assert contents.complete


def test_a_loss_that_is_no_number_reads_back_too(tmp_path: Path) -> None:
    log = SpanLog(tmp_path / "rank.spans", HEADER)
    log.record_loss(0, math.nan)
    log.complete()
    ((iteration, loss),) = read_span_log(tmp_path / "rank.spans").losses
    assert iteration == 0
    assert math.isnan(loss)


def test_a_log_without_losses_reads_as_before(tmp_path: Path) -> None:
    log = SpanLog(tmp_path / "rank.spans", HEADER)
    log.record(FORWARD)
    log.complete()
    assert read_span_log(tmp_path / "rank.spans").losses == ()


def test_a_line_of_another_kind_is_refused(tmp_path: Path) -> None:
    SpanLog(tmp_path / "rank.spans", HEADER).complete()
    with (tmp_path / "rank.spans").open("a") as file:
        file.write('{"iteration":0,"gain":1.0}\n')
    with pytest.raises(ValueError, match="line 3 is neither a span nor a loss"):
        read_span_log(tmp_path / "rank.spans")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "7",
        '"forward"',
        '["forward",0,3,1000',
        '["forward",0,3,1000]',
        '["forward",0,3,"1000",2000]',
        '["forward",0,3,1000,true]',
        '["forward",0,3,1000,1e300]',
        '["forward",0,3,1000,9223372036854775808]',
        '[["forward"],0,3,1000,2000]',
        '{"iteration":0,"loss":"low"}',
        '{"iteration":0,"loss":1.0,"gain":1.0}',
        '{"sum":0,"ranks":7,"late":0}',
        '{"sum":0,"ranks":["a"],"late":0}',
        '{"device":{"device":"cpu"}}',
        '{"device":{"device":"cpu","model":7}}',
        '{"swapping":{"groups":[{}]}}',
        "[" * 100_000,
        "9" * 5000,
    ],
)
def test_a_line_that_no_rank_writes_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    SpanLog(tmp_path / "rank.spans", HEADER).flush()
    with (tmp_path / "rank.spans").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(SpanLogError, match=r"rank.spans: line 2 is neither a span nor a loss"):
        read_span_log(tmp_path / "rank.spans")


@pytest.mark.parametrize("text", ["", "hello\n", "[]\n", '{"version": 1}\n', "[" * 100_000])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "other").write_text(text)
    with pytest.raises(ValueError, match="not a span log"):
        read_span_log(tmp_path / "other")


def test_another_version_is_refused(tmp_path: Path) -> None:
    log = SpanLog(tmp_path / "rank.spans", HEADER)
    log.complete()
    text = (tmp_path / "rank.spans").read_text().replace('"version":2', '"version":99')
    (tmp_path / "rank.spans").write_text(text)
    with pytest.raises(ValueError, match="version 99"):
        read_span_log(tmp_path / "rank.spans")


def test_the_record_of_a_device_reads_back(tmp_path: Path) -> None:
    record = DeviceRecord("GPU-1", "NVIDIA H200", 5, 6, 7, 8, 9, check_iteration=1, check_spans_ns=11)
    log = SpanLog(tmp_path / "rank.spans", HEADER)
    log.record(FORWARD)
    log.record_device(record)
    log.complete()
    assert read_span_log(tmp_path / "rank.spans").device == record
    assert read_span_log(tmp_path / "rank.spans").spans == (FORWARD,)


def test_what_swapping_took_reads_back(tmp_path: Path) -> None:
    groups = (SwappedGroup(1, 10, 2, 3, 4), SwappedGroup(2, 20, 3, 4, 5))
    record = SwappingRecord(groups, 30, None, 12, 13, 2, 40, 7, 30, 6, 4, 1)
    log = SpanLog(tmp_path / "rank.spans", HEADER)
    log.record_swapping(record)
    log.complete()
    assert read_span_log(tmp_path / "rank.spans").swapping == record
