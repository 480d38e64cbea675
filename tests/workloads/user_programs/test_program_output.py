"""Which line of what a program printed says why it ended."""

import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.records.span_log import RankPlace, Span, SpanLogContents, read_span_log
from wanbed.workloads.user_programs.program_output import BoundedOutput, IterationMarks, OutputLimitError, telling_line

TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    raise ValueError("wrong shape")

    extra
ValueError: wrong shape
"""


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (b"", ""),
        (b"\n \n\t\n", ""),
        (b"first\nlast\n", "last"),
        (b"first\nlast", "last"),
        (b"first\r\nlast\r\n\r\n", "last"),
        (b"error: no such option\n======\n", "error: no such option"),
        (b"10%\r50%\r100%\n", "100%"),
        (b"\x1b[31merror\x1b[0m\n", "error"),
        (b"caf\xc3\xa9 \xff\xfe\n", "caf\N{LATIN SMALL LETTER E WITH ACUTE} \ufffd\ufffd"),
        (b"a\x00b\n", "a\\x00b"),
        (b"x" * 1000, "x" * 400 + "..."),
    ],
)
def test_it_is_the_last_line_with_a_word_on_one_printable_line(printed: bytes, line: str) -> None:
    assert telling_line(printed) == line


@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "[default0]:"])
def test_the_exception_of_a_traceback_goes_before_warnings_after_it(prefix: str) -> None:
    printed = "".join(f"{prefix}{line}\n" for line in TRACEBACK.splitlines())
    warned = f"loading\n{printed}[W1] Warning: destroy_process_group() was not called\n"
    assert telling_line(warned.encode()) == "ValueError: wrong shape"


def test_the_last_of_several_tracebacks_counts() -> None:
    both = f"{TRACEBACK}\nDuring handling of the above exception, another occurred:\n\n{TRACEBACK}"
    assert telling_line(both.replace("wrong", "good", 2).encode()) == "ValueError: wrong shape"


def test_a_traceback_that_is_cut_off_leaves_the_last_line() -> None:
    assert telling_line(b"Traceback (most recent call last):\n  File x\n") == "File x"


def test_all_up_to_the_limit_is_saved_and_no_byte_more(tmp_path: Path) -> None:
    output = BoundedOutput("standard output", tmp_path / "out", 2**10)
    output.add(b"x" * 1000 + b"\n")
    output.add(b"y" * 23)
    assert (tmp_path / "out").stat().st_size == 2**10
    with pytest.raises(OutputLimitError, match=r"^printed more than 1KiB to standard output: yyy+z$"):
        output.add(b"z")
    assert (tmp_path / "out").read_bytes() == b"x" * 1000 + b"\n" + b"y" * 23


def test_the_line_of_its_end_is_remembered_however_much_was_printed(tmp_path: Path) -> None:
    output = BoundedOutput("standard error", tmp_path / "err", 2**30)
    for _ in range(100):
        output.add(b"line\n" * 1000)
    output.add(b"the la")
    output.add(b"st\n")
    assert output.telling_line() == "the last"


def test_a_file_of_an_earlier_program_is_emptied(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("old")
    BoundedOutput("standard output", tmp_path / "out", 1)
    assert (tmp_path / "out").read_bytes() == b""


def test_a_full_disk_names_the_file() -> None:
    output = BoundedOutput("standard output", Path("/dev/full"), 2**10)
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        output.add(b"text\n")
    assert output.telling_line() == "text"


HEADER = RankPlace(1, "west-0", "west", 0, 1, 0)

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
