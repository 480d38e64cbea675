"""Read a source: a folder with what somebody published, the experiments that say the same, and how the two are joined.

A folder has ``source.yaml``, experiment files, and tables of published figures as CSV, in the words of the source. A
*form* turns each row of a table into an experiment. Its texts name columns of the table: ``$nodes`` stands for the
row's value there.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import Template
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

FOLDER = Path(__file__).parent / "sources"
PUBLISHED = "published"
"""The column of a table that has what the source measured."""
EMULATED = "emulated"
"""The column of a table that has what an emulation has measured."""

Text = Annotated[str, Field(min_length=1)]
Counted = Literal["foretold", "misread", "explained", "tried"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Input(_Strict):
    """One input of the experiments, and where the source states it."""

    input: Text
    where: Text


class Missing(_Strict):
    """Published rows that no experiment can say yet, and the feature that they need."""

    rows: Text
    feature: Text


class Form(_Strict):
    """One way to say a group's rows as experiments. It is the same for all rows.

    ``counted`` is ``foretold`` if the text of the source alone fixes the form, ``explained`` if it was chosen with the
    figures in view, and ``tried`` if it stands on the page for comparison only. ``misread`` is the form that a first
    reading of the text gave, where a second one found that the text says something else. The simulated figure is the
    sum over the sweep points of ``column`` of the run's summary, each with its weight: ``times`` over ``per``. With an
    ``amount`` it is that amount over the sum: a throughput.
    """

    name: Text
    counted: Counted
    why: Text
    experiment: Text
    variant: Text
    values: Mapping[str, str] = {}
    column: Text = "iteration_time_s"
    times: Text = "[1]"
    per: Text = "1"
    amount: float | None = None


class Emulated(_Strict):
    """The rows of a group that are emulated too, in one of its forms: those whose cells are among ``rows``.

    ``values`` replace some of the form's, and all of those below them, since an emulation refuses what only a
    simulation models. ``how`` says what that changes. ``table`` has the emulated figures, as ``python -m
    studies.foretold.emulation`` writes them.
    """

    form: Text
    rows: Mapping[str, tuple[str, ...]]
    values: Mapping[str, str] = {}
    how: Text
    table: Text


class Group(_Strict):
    """Rows of one table that are measured, said and judged alike."""

    name: Text
    title: Text
    table: Text
    shown: tuple[Text, ...]
    unit: Literal["s", "share", "samples/s"] = "s"
    misses: Text = "none"
    forms: tuple[Form, ...]
    emulated: Emulated | None = None

    @model_validator(mode="after")
    def _one_form_counts(self) -> "Group":
        counted = [form.counted for form in self.forms]
        if counted.count("foretold") > 1 or counted.count("explained") > 1 or {*counted} == {"tried"}:
            raise ValueError(f"{self.name}: one form is foretold, or one explained, or one of each; others are tried")
        if counted.count("misread") > counted.count("foretold"):
            raise ValueError(f"{self.name}: one form is misread at most, beside the one that is foretold")
        if len({form.name for form in self.forms}) < len(self.forms):
            raise ValueError(f"{self.name}: two forms have the same name")
        if self.emulated is not None and self.emulated.form not in {form.name for form in self.forms}:
            raise ValueError(f"{self.name}: {self.emulated.form!r} is emulated, and is no form")
        return self


class SourceText(_Strict):
    """What ``source.yaml`` has."""

    title: Text
    origin: Text
    inputs: tuple[Input, ...]
    not_published: tuple[Text, ...]
    cannot_say: tuple[Missing, ...] = ()
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Source:
    """A source, read from its folder."""

    folder: Path
    text: SourceText

    @classmethod
    def read(cls, folder: Path) -> "Source":
        """Read a folder. Raise ValueError for what it says wrongly."""
        written = yaml.safe_load((folder / "source.yaml").read_text(encoding="utf-8"))
        return cls(folder, SourceText.model_validate(written))

    @cached_property
    def rows(self) -> tuple["Row", ...]:
        """Every row of every form of every group."""
        return tuple(self._rows())

    def emulated(self, group: Group) -> tuple["Row", ...]:
        """Return the rows of a group that are emulated too, with the values that an emulation takes."""
        emulated = group.emulated
        if emulated is None:
            return ()
        form = next(form for form in group.forms if form.name == emulated.form)
        whole = tuple(f"{path}." for path in emulated.values)
        kept = {path: text for path, text in form.values.items() if not path.startswith(whole)}
        form = form.model_copy(update={"values": {**kept, **emulated.values}})
        return tuple(
            Row(self.folder, group, form, cells)
            for cells in table(self.folder / group.table)
            if all(cells[column] in texts for column, texts in emulated.rows.items())
        )

    def emulated_figures(self, group: Group) -> dict[str, float]:
        """Return the emulated figures of a group by the labels of their rows, of those that there are."""
        if group.emulated is None or not (path := self.folder / group.emulated.table).exists():
            return {}
        rows = table(path)
        return {", ".join(row[column] for column in group.shown): float(row[EMULATED]) for row in rows}

    def _rows(self) -> Iterator["Row"]:
        for group in self.text.groups:
            for cells in table(self.folder / group.table):
                for form in group.forms:
                    yield Row(self.folder, group, form, cells)


@dataclass(frozen=True)
class Row:
    """One published figure, said in one form."""

    folder: Path
    group: Group
    form: Form
    cells: Mapping[str, str]

    @property
    def label(self) -> str:
        """The row in the words of its table."""
        return ", ".join(self.cells[column] for column in self.group.shown)

    @property
    def published(self) -> float:
        """What was measured."""
        return float(self.cells[PUBLISHED])

    @property
    def experiment(self) -> Path:
        """The experiment file."""
        return self.folder / self._filled(self.form.experiment)

    @property
    def variant(self) -> str:
        """The variant of the experiment that is the row's."""
        return self._filled(self.form.variant)

    @property
    def values(self) -> Mapping[str, Any]:
        """The values that replace some of the file's, by their paths."""
        return {path: yaml.safe_load(self._filled(text)) for path, text in self.form.values.items()}

    @property
    def weights(self) -> tuple[float, ...]:
        """The factor of each sweep point's figure."""
        per = float(self._filled(self.form.per))
        return tuple(times / per for times in yaml.safe_load(self._filled(self.form.times)))

    def _filled(self, text: str) -> str:
        return Template(text).substitute(self.cells)


def table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table, by column. Lines that begin with # are left out."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def sources(folder: Path = FOLDER) -> tuple[Source, ...]:
    """Return every source below a folder, by name."""
    return tuple(Source.read(each.parent) for each in sorted(folder.glob("*/source.yaml")))
