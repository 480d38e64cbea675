"""Find the experiments that are shipped, by name: what each shows, and its text. No file is parsed for this."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

FOLDER = Path(__file__).parent
_PAPER = "paper"
_SCHEMA_LINE = re.compile(r"^# yaml-language-server:\s*\$schema=(\S+)\n", re.MULTILINE)


@dataclass(frozen=True)
class ShippedExperiment:
    """A shipped experiment and its file."""

    path: Path

    @property
    def name(self) -> str:
        """The name by which commands accept it: the file's name without its ending."""
        return self.path.stem

    @property
    def of_the_paper(self) -> bool:
        """Whether it reproduces a figure or claim of the paper."""
        return self.path.parent.name == _PAPER

    @property
    def shows(self) -> str:
        """The first paragraph of the comment at the top of the file."""
        words: list[str] = []
        for line in _SCHEMA_LINE.sub("", self.path.read_text(encoding="utf-8")).splitlines():
            text = line.removeprefix("#").strip()
            if not line.startswith("#") or (words and not text):
                break
            words += text.split()
        return " ".join(words)

    @property
    def clock(self) -> str:
        """The clock of ``wanbed run``: real or virtual."""
        chosen = re.search(r"^clock:\s*(\w+)", self.path.read_text(encoding="utf-8"), re.MULTILINE)
        return chosen[1] if chosen else "real"

    @property
    def trains_in_torch(self) -> bool:
        """Whether torch computes, in place of a replayed profile."""
        return "kind: torch" in self.path.read_text(encoding="utf-8")

    def text_for(self, folder: Path) -> str:
        """Return the file's text as a copy in another folder needs it: its schema is found from there."""
        text = self.path.read_text(encoding="utf-8")
        written = _SCHEMA_LINE.search(text)
        if written is None or "://" in written[1] or folder.resolve() == self.path.parent.resolve():
            return text
        schema = (self.path.parent / written[1]).resolve()
        return text[: written.start(1)] + str(schema) + text[written.end(1) :]


def shipped_experiments() -> tuple[ShippedExperiment, ...]:
    """Return all shipped experiments by name, those of the paper last."""
    return tuple(ShippedExperiment(path) for folder in (FOLDER, FOLDER / _PAPER) for path in _files(folder))


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("*.yaml"), key=lambda path: path.stem)


def shipped_experiment(name: str) -> ShippedExperiment | None:
    """Return the shipped experiment of that name, None if there is none."""
    return next((each for each in shipped_experiments() if each.name == name), None)


def instead_of(name: str) -> str:
    """Return the remedy for a name that no shipped experiment has."""
    near = get_close_matches(name, [each.name for each in shipped_experiments()])
    return f"did you mean {' or '.join(map(repr, near))}?" if near else "wanbed examples lists them"
