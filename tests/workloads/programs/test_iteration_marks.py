"""Marks of iterations in a program's standard output."""

import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.records.span_log import Span, SpanLogContents, SpanLogHeader, read_span_log
from wanbed.workloads.programs.iteration_marks import IterationMarks

HEADER = SpanLogHeader(1, "west-0", "west", 0, 1, 0)
BEGAN_NS = 100


def marked(folder: Path, pieces: list[bytes], iterations: int, pattern: str = r"^step \d+") -> SpanLogContents:
    """Read one piece each 10 ns and return the log."""
    marks = IterationMarks(folder / "spans.jsonl", HEADER, pattern, iterations, BEGAN_NS)
    for number, piece in enumerate(pieces, start=1):
        marks.add(piece, BEGAN_NS + 10 * number)
    marks.close(BEGAN_NS + 10 * (len(pieces) + 1))
    return read_span_log(folder / "spans.jsonl")


def test_each_iteration_lasts_from_the_mark_before_to_its_own(tmp_path: Path) -> None:
    log = marked(tmp_path, [b"loading\nstep 0\n", b"loss 3\n", b"step 1 loss 2\r\n"], 3)
    assert log.header == HEADER
    assert log.spans == (Span("iteration", 0, -1, 100, 110), Span("iteration", 1, -1, 110, 130))
    assert not log.complete


def test_marks_that_are_read_at_once_end_at_once(tmp_path: Path) -> None:
    log = marked(tmp_path, [b"step 0\nstep 1\n"], 2)
    assert [(span.start_ns, span.end_ns) for span in log.spans] == [(100, 110), (110, 110)]
    assert log.complete


def test_what_follows_the_last_iteration_changes_nothing(tmp_path: Path) -> None:
    log = marked(tmp_path, [b"step 0\n", b"step 1\nstep 2\n", b"step 3\n"], 2)
    assert [span.iteration for span in log.spans] == [0, 1]
    assert log.complete


def test_the_last_line_needs_no_end(tmp_path: Path) -> None:
    log = marked(tmp_path, [b"step 0\nste", b"p 1"], 2)
    assert [span.end_ns for span in log.spans] == [110, 130]
    assert log.complete


def test_a_line_without_end_is_bounded_and_its_beginning_counts(tmp_path: Path) -> None:
    log = marked(tmp_path, [b"step 0 ", *[b"x" * 2**20] * 20, b"\nstep 1\n"], 3)
    assert [span.iteration for span in log.spans] == [0, 1]


@given(st.lists(st.sampled_from([b"step 1", b"x", b"\n", b"\r\n", b"st", b"ep 2", b"\xff"])), st.data())
def test_how_the_output_is_cut_into_pieces_does_not_matter(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)))) | {0, len(whole)})
    pieces = [whole[start:end] for start, end in pairwise(cuts)]
    with tempfile.TemporaryDirectory() as folder:
        found = len(marked(Path(folder), pieces, 1000).spans)
    assert found == sum(line.startswith((b"step 1", b"step 2")) for line in whole.split(b"\n"))


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=str(tmp_path / "none")):
        IterationMarks(tmp_path / "none" / "spans.jsonl", HEADER, "x", 1, 0)
