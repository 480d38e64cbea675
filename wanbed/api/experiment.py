"""Provide an experiment that is read from a file or built in Python, with the same fields and the same checks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Required, Self, TypedDict, Unpack

import yaml

from wanbed.api.plain_values import plain
from wanbed.ground.files.atomic_write import write_whole
from wanbed.ground.shown_text import one_line
from wanbed.ground.strict_model import parse_model, prefixed
from wanbed.results.text.number_text import count_text
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.field_path import parse_path, with_value
from wanbed.runner.experiment.sweep_points import (
    SweepPointSpec,
    read_experiment,
    sweep_point_specs,
    with_topology_inline,
)
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import Experiment as ResolvedExperiment

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
class WrittenExperiment:
    """An experiment as it is written, checked field by field; what the engines and the planner start from."""

    document: Mapping[str, Any]
    source: str
    directory: Path
    spec: ExperimentSpec
    points: tuple[SweepPointSpec, ...]

    @classmethod
    def of(cls, written: Mapping[str, Any], source: str, directory: Path) -> Self:
        """Check a document. Raise InputError, one line that starts with ``source``."""
        document = with_topology_inline(written, directory, source)
        spec = parse_model(ExperimentSpec, document, source)
        return cls(document, source, directory, spec, tuple(sweep_point_specs(spec, document, source, directory)))

    def with_values(self, values: Mapping[str, object]) -> Self:
        """Return the experiment with other values at some paths."""
        document: Any = self.document
        for path, value in values.items():
            with prefixed(f"{self.source}: {one_line(path)}: "):
                document = with_value(document, parse_path(path), plain(value))
        return self.of(document, self.source, self.directory)

    def resolved(self, engine: str | None = None) -> ResolvedExperiment:
        """Return what runs, on another engine than the document's if one is given."""
        document = self.document if engine is None else {**self.document, "engine": engine}
        return parse_experiment(document, self.source, self.directory)


class Experiment:
    """An experiment: a network, what trains over it, the variants to compare, and the sweep.

    The fields are those of the file, with values as the file has them: ``"10ms"``, ``"5Gbit"``, ``"64KiB"``. A
    schedule may also be given as its class. ``directory`` is where relative paths of topologies and profiles begin.
    Raise InputError, one line with field and remedy, for what a file would be refused for.
    """

    def __init__(self, *, directory: str | PathLike[str] = ".", **fields: Unpack[ExperimentFields]) -> None:
        with prefixed(f"{_IN_PYTHON}: "):
            document = plain(fields)
        self._written = WrittenExperiment.of(document, _IN_PYTHON, Path(directory))

    @classmethod
    def from_file(cls, path: str | PathLike[str], values: Mapping[str, object] | None = None) -> Self:
        """Return the experiment of a file. ``values`` replace some of the file's, as in ``with_values``."""
        document, source = read_experiment(Path(path))
        return cls._of(WrittenExperiment.of(document, source, Path(path).parent)).with_values(values or {})

    @classmethod
    def _of(cls, written: WrittenExperiment) -> Self:
        experiment = cls.__new__(cls)
        experiment._written = written
        return experiment

    @property
    def name(self) -> str:
        """The name, with which a run's folder begins."""
        return self._written.spec.name

    @property
    def variants(self) -> list[str]:
        """The names of the variants."""
        return [variant.name for variant in self._written.spec.variants]

    @property
    def sweep_points(self) -> list[dict[str, str]]:
        """The swept values of each sweep point as text, by path; a single ``{}`` without a sweep."""
        return [dict(point.values) for point in self._written.points]

    def with_values(self, values: Mapping[str, object]) -> Self:
        """Return an experiment with other values at some paths, like ``{"topology.wan.latency": "40ms"}``."""
        return self._of(self._written.with_values(values)) if values else self

    def to_file(self, path: str | PathLike[str]) -> None:
        """Write the experiment as a file for the command line. Relative paths in it stay as they are."""
        write_whole(Path(path), yaml.safe_dump(dict(self._written.document), sort_keys=False, allow_unicode=True))

    def __repr__(self) -> str:
        points, variants = count_text(len(self.sweep_points), "sweep point"), count_text(len(self.variants), "variant")
        return f"<Experiment {self.name!r}: {points}, {variants}>"


def written_experiment(experiment: Experiment | str | PathLike[str]) -> WrittenExperiment:
    """Return what is written in an experiment, or in the file of that path."""
    return (experiment if isinstance(experiment, Experiment) else Experiment.from_file(experiment))._written
