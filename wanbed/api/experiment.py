"""Provide an experiment that is read from a file or built in Python, with the same fields and the same checks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, Required, Self, TypedDict, Unpack

import numpy as np
import yaml

from wanbed.ground.errors import InputError, prefixed
from wanbed.ground.files import write_whole
from wanbed.results.text import count_text
from wanbed.runner.experiment.experiment_document import ExperimentDocument
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.field_path import parse_path, with_value
from wanbed.runner.experiment.sweep import SweepPointSpec, sweep_point_specs
from wanbed.runner.planner.experiment_file import resolve_document
from wanbed.runner.resolve.experiment import Experiment as ResolvedExperiment
from wanbed.workloads.schedules.schedule import Schedule

_IN_PYTHON = "Experiment"
"""Begins the messages on an experiment that is built in Python, in place of a file's path."""


class ExperimentFields(TypedDict, total=False):
    """The sections of an experiment file."""

    name: str
    topology: Required[Mapping[str, object] | str]
    model: Mapping[str, object] | str
    compute: Mapping[str, object]
    training: Mapping[str, object]
    variants: Sequence[Mapping[str, object]]
    jobs: Sequence[Mapping[str, object]]
    background: Sequence[Mapping[str, object]]
    prefill: Mapping[str, object] | None
    sweep: Mapping[str, object]
    repeats: int
    seed: int
    engine: Literal["emulate", "rack", "simulate"]
    clock: Literal["real", "virtual"]
    dilation: float | Literal["auto"]
    fail: Sequence[Mapping[str, object]]
    recovery: Literal["none", "restart"]
    checkpoint_every: int
    traces: Mapping[str, str]


@dataclass(frozen=True)
class CheckedExperiment:
    """An experiment whose fields are checked one by one: what the engines and the planner start from."""

    document: ExperimentDocument
    points: tuple[SweepPointSpec, ...]

    @classmethod
    def of(cls, document: ExperimentDocument) -> Self:
        """Check a document. Raise InputError, one line that starts with its source."""
        return cls(document, tuple(sweep_point_specs(document)))

    @property
    def spec(self) -> ExperimentSpec:
        """The fields, parsed."""
        return self.document.spec

    def with_values(self, values: Mapping[str, object]) -> Self:
        """Return the experiment with other values at some paths."""
        source, fields = self.document.source, self.document.fields
        for path, value in values.items():
            with prefixed(f"{source}: {path}: "):
                fields = with_value(fields, parse_path(path), plain(value))
        return self.of(ExperimentDocument.of(fields, source, self.document.directory))

    def resolved(self, engine: str | None = None) -> ResolvedExperiment:
        """Return what runs, on another engine than the document's if one is given."""
        return resolve_document(self.document if engine is None else self.document.on_engine(engine))


class Experiment:
    """An experiment: a network, what trains over it, the variants to compare, and the sweep.

    The fields are those of the file, with values as the file has them: ``"10ms"``, ``"5Gbit"``, ``"64KiB"``. A
    schedule may also be given as its class. ``directory`` is where relative paths of topologies and profiles begin.
    Raise InputError, one line with field and remedy, for what a file would be refused for.
    """

    def __init__(self, *, directory: str | PathLike[str] = ".", **fields: Unpack[ExperimentFields]) -> None:
        with prefixed(f"{_IN_PYTHON}: "):
            written = plain(fields)
        self._checked = CheckedExperiment.of(ExperimentDocument.of(written, _IN_PYTHON, Path(directory)))

    @classmethod
    def from_file(cls, path: str | PathLike[str], values: Mapping[str, object] | None = None) -> Self:
        """Return the experiment of a file. ``values`` replace some of the file's, as in ``with_values``."""
        return cls._of(CheckedExperiment.of(ExperimentDocument.read(Path(path)))).with_values(values or {})

    @classmethod
    def _of(cls, checked: CheckedExperiment) -> Self:
        experiment = cls.__new__(cls)
        experiment._checked = checked
        return experiment

    @property
    def name(self) -> str:
        """The name, with which a run's folder begins."""
        return self._checked.spec.name

    @property
    def variants(self) -> list[str]:
        """The names of the variants."""
        return [variant.name for variant in self._checked.spec.variants]

    @property
    def sweep_points(self) -> list[dict[str, str]]:
        """The swept values of each sweep point as text, by path; a single ``{}`` without a sweep."""
        return [dict(point.values) for point in self._checked.points]

    def with_values(self, values: Mapping[str, object]) -> Self:
        """Return an experiment with other values at some paths, like ``{"topology.wan.latency": "40ms"}``."""
        return self._of(self._checked.with_values(values)) if values else self

    def to_file(self, path: str | PathLike[str]) -> None:
        """Write the experiment as a file for the command line. Relative paths in it stay as they are."""
        fields = dict(self._checked.document.fields)
        write_whole(Path(path), yaml.safe_dump(fields, sort_keys=False, allow_unicode=True))

    def __repr__(self) -> str:
        points, variants = count_text(len(self.sweep_points), "sweep point"), count_text(len(self.variants), "variant")
        return f"<Experiment {self.name!r}: {points}, {variants}>"


def checked_experiment(experiment: Experiment | str | PathLike[str]) -> CheckedExperiment:
    """Return what is checked of an experiment, or of the file of that path."""
    return (experiment if isinstance(experiment, Experiment) else Experiment.from_file(experiment))._checked


_MAX_DEPTH = 50


def plain(value: object, path: tuple[str, ...] = ()) -> Any:
    """Return ``value`` in dictionaries, lists, text and numbers; a schedule class becomes its path as text.

    Numbers and arrays of numpy become Python's. Anything else stays for the checks of the experiment to refuse.
    ``path`` is where the value stands. Raise InputError for a class that has no path, and for endless nesting.
    """
    if len(path) > _MAX_DEPTH:
        raise InputError(f"{'.'.join(path[:3])}: it is nested too deeply")
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist(), path)
    if isinstance(value, Mapping):
        return {key: plain(below, (*path, str(key))) for key, below in value.items()}
    if isinstance(value, str | PathLike):
        return str(fspath(value))
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(below, (*path, str(position))) for position, below in enumerate(value)]
    if isinstance(value, type) and issubclass(value, Schedule):
        return _class_path(value, ".".join(path))
    return value


def _class_path(kind: type[Schedule], field: str) -> str:
    if "." in kind.__qualname__:
        raise InputError(f"{field}: {kind.__qualname__} cannot be imported: define it at the top of a module")
    return f"{kind.__module__}:{kind.__qualname__}"
