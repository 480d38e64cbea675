"""Which line of what a program printed says why it ended."""

import pytest

from wanbed.workloads.programs.stderr_tail import telling_line

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
