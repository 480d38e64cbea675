"""Keep the recorded outputs, a line each: its name, a tab, and the output with spaces in place of line breaks."""

from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).with_name("recorded")
SIMULATIONS, REFUSALS, VIRTUAL_TIME = (FOLDER / f"{name}.txt" for name in ("simulations", "refusals", "virtual-time"))


def read(file: Path) -> dict[str, str]:
    """Return what was recorded, by name."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines)


def write(file: Path, outputs: Iterable[tuple[str, str]]) -> None:
    """Record outputs."""
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{name}\t{one_line(output)}\n" for name, output in outputs), encoding="utf-8")


def one_line(output: str) -> str:
    """Return an output as it is recorded."""
    return " ".join(output.splitlines())
