import os
from pathlib import Path
from typing import Any

import pytest

from wanbed.results.records import span_log
from wanbed.workloads.user_programs.hook.wanbed_hook.span_log_file import VERSION, Span, SpanLogFile

HEADER: dict[str, Any] = {"rank": 3, "host": "east-0", "datacenter": "east", "gpu": 1, "pipeline": 3, "stage": 0}


def claim(path: Path) -> SpanLogFile:
    log = SpanLogFile.claim(str(path), HEADER)
    assert log is not None
    return log


def test_its_spans_are_those_of_every_other_log(tmp_path: Path) -> None:
    assert span_log.SPAN_LOG_VERSION == VERSION
    assert (*Span._fields, "virtual_stage") == span_log.Span._fields, "no program tells of virtual stages"
    assert (*Span("send", 1, -1, 2, 3), None) == span_log.Span("send", 1, -1, 2, 3)


def test_what_is_written_is_read_at_once(tmp_path: Path) -> None:
    log = claim(tmp_path / "log")
    assert span_log.read_span_log(tmp_path / "log").spans == ()
    log.write([Span("iteration", 0, -1, 5, 9), Span("all_reduce", 0, -1, 6, 8, 40, "", "0,1")])
    contents = span_log.read_span_log(tmp_path / "log")
    assert contents.header == span_log.RankPlace(**HEADER)
    assert [tuple(span) for span in contents.spans] == [
        ("iteration", 0, -1, 5, 9, 0, "", "", -1, None),
        ("all_reduce", 0, -1, 6, 8, 40, "", "0,1", -1, None),
    ]
    assert not contents.complete
    log.write([{"complete": True}])
    log.close()
    assert span_log.read_span_log(tmp_path / "log").complete


def test_the_first_to_claim_owns_it(tmp_path: Path) -> None:
    first = claim(tmp_path / "log")
    assert SpanLogFile.claim(str(tmp_path / "log"), {**HEADER, "rank": 4}) is None
    first.close()
    assert os.listdir(tmp_path) == ["log"]
    assert span_log.read_span_log(tmp_path / "log").header.rank == 3


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SpanLogFile.claim(str(tmp_path / "nowhere" / "log"), HEADER)
