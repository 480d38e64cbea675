"""Find the experiments that are shipped, by name: what each shows, and its text. No file is parsed for this."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

FOLDER = Path(__file__).parent
_PROGRAMS = "programs"
_PAPER = "paper"
_FOLDERS = (FOLDER, FOLDER / _PROGRAMS, FOLDER / _PAPER)
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
        """True if it reproduces a figure or claim of the paper."""
        return self.path.parent.name == _PAPER

    @property
    def of_a_program(self) -> bool:
        """True if a program trains, which is shipped beside the file."""
        return self.path.parent.name == _PROGRAMS

    @property
    def program(self) -> Path | None:
        """The program that trains, if one does: it has the experiment's name, as Python writes names."""
        return self.path.with_name(self.name.replace("-", "_") + ".py") if self.of_a_program else None

    @property
    def requirements(self) -> Path | None:
        """The exact versions of what the program needs beside torch; None if it needs nothing else."""
        path = self.path.with_suffix(".txt")
        return path if path.exists() else None

    @property
    def beside(self) -> tuple[Path, ...]:
        """The files that a copy of the experiment needs beside it."""
        return tuple(path for path in (self.program, self.requirements) if path is not None)

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages to install beside wanbed: torch, and the first package that the program's requirements name."""
        if self.requirements is not None:
            return ("torch", self.requirements.read_text(encoding="utf-8").split("==")[0])
        return ("torch",) if self.trains_in_torch else ()

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
        """True if torch computes, in place of a replayed profile."""
        return self.of_a_program or "kind: torch" in self.path.read_text(encoding="utf-8")

    def text_for(self, folder: Path) -> str:
        """Return the file's text as a copy in another folder needs it: its schema is found from there."""
        text = self.path.read_text(encoding="utf-8")
        written = _SCHEMA_LINE.search(text)
        if written is None or "://" in written[1] or folder.resolve() == self.path.parent.resolve():
            return text
        schema = (self.path.parent / written[1]).resolve()
        return text[: written.start(1)] + str(schema) + text[written.end(1) :]


def shipped_experiments() -> tuple[ShippedExperiment, ...]:
    """Return all shipped experiments by name; those with a program follow the others, those of the paper come last."""
    return tuple(ShippedExperiment(path) for folder in _FOLDERS for path in _files(folder))


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("*.yaml"), key=lambda path: path.stem)


def shipped_experiment(name: str) -> ShippedExperiment | None:
    """Return the shipped experiment of that name, None if there is none."""
    return next((each for each in shipped_experiments() if each.name == name), None)


def instead_of(name: str) -> str:
    """Return the remedy for a name that no shipped experiment has."""
    near = get_close_matches(name, [each.name for each in shipped_experiments()])
    return f"did you mean {' or '.join(map(repr, near))}?" if near else "wanbed examples lists them"
