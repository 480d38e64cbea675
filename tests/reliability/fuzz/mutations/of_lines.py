"""Change texts of lines and cells: CSV, JSON on each line, times on each line."""

from collections.abc import Callable
from random import Random

from tests.reliability.fuzz.mutations.of_bytes import damaged_bytes
from tests.reliability.fuzz.mutations.wrong_values import TEXTS

_NUMBERS = (
    "0",
    "-1",
    "-0",
    "1e3",
    "1E9",
    "+1",
    " 1 ",
    "1_000",
    "0x10",
    "1.5",
    "9" * 30,
    "9" * 5000,
    "NaN",
    "inf",
    "",
    "\u0661",
)
_SEPARATORS = ",:;\t {}\"'[]="


def damaged_lines(data: bytes, draw: Random) -> bytes:
    """Return the text with changes of its lines, its cells, its bytes, or of two of them."""
    if draw.random() < 0.85:
        lines = data.decode().split("\n")
        for _ in range(draw.choice((1, 1, 2, 3))):
            lines = draw.choice(_CHANGES)(lines, draw)
        data = "\n".join(lines).encode(errors="surrogatepass")
        return damaged_bytes(data, draw) if draw.random() < 0.1 else data
    return damaged_bytes(data, draw)


def _another_cell(lines: list[str], draw: Random) -> list[str]:
    place = draw.randrange(len(lines))
    separator = draw.choice([each for each in _SEPARATORS if each in lines[place]] or [","])
    cells = lines[place].split(separator)
    cells[draw.randrange(len(cells))] = draw.choice((*_NUMBERS, *TEXTS))
    return [*lines[:place], separator.join(cells), *lines[place + 1 :]]


def _cells_swapped(lines: list[str], draw: Random) -> list[str]:
    place = draw.randrange(len(lines))
    cells = lines[place].split(",")
    draw.shuffle(cells)
    return [*lines[:place], ",".join(cells), *lines[place + 1 :]]


def _line_without(lines: list[str], draw: Random) -> list[str]:
    place = draw.randrange(len(lines))
    return [*lines[:place], *lines[place + 1 :]] or [""]


def _line_twice(lines: list[str], draw: Random) -> list[str]:
    place = draw.randrange(len(lines))
    return [*lines[:place], *[lines[place]] * draw.choice((2, 2, 50)), *lines[place + 1 :]]


def _lines_swapped(lines: list[str], draw: Random) -> list[str]:
    one, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    lines = [*lines]
    lines[one], lines[other] = lines[other], lines[one]
    return lines


def _line_between(lines: list[str], draw: Random) -> list[str]:
    place = draw.randint(0, len(lines))
    line = draw.choice(
        (*TEXTS, "# a comment", ",", ",,,", '"', '"a', "{", "{}", "[]", "x" * 2**20, "[" * 5000, "1" * 5000)
    )
    return [*lines[:place], line, *lines[place:]]


_CHANGES: tuple[Callable[[list[str], Random], list[str]], ...] = (
    _another_cell,
    _another_cell,
    _another_cell,
    _cells_swapped,
    _line_without,
    _line_twice,
    _lines_swapped,
    _line_between,
)
