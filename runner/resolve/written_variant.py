"""Describe a variant as the experiment file has it at one sweep point, before it is resolved."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.job_spec import JobSpec
from wanbed.runner.experiment.variant_spec import VariantSpec
from wanbed.runner.resolve.measured_times import MeasuredTimes, measured_times
from wanbed.testbed.network.topology import Topology


@dataclass(frozen=True)
class WrittenVariant:
    """A variant of the experiment file at one sweep point, by its position in ``variants``.

    Relative paths start at ``directory``. ``values`` are the swept values of the sweep point, as text by path.
    """

    spec: ExperimentSpec
    position: int
    topology: Topology
    directory: Path
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def variant(self) -> VariantSpec:
        """The variant itself."""
        return self.spec.variants[self.position]

    @property
    def job(self) -> JobSpec | None:
        """The job that the variant is of, None where the experiment has no jobs."""
        return next((job for job in self.spec.jobs if self.variant.name in job.variants), None)

    @property
    def iterations(self) -> int:
        """The iterations of a trial: the job's, otherwise those of the experiment."""
        own = None if self.job is None else self.job.iterations
        return own or self.spec.training.iterations

    @cached_property
    def measured(self) -> MeasuredTimes | None:
        """The compute times of the run ``compute.from``, None without one. Raise InputError if it has none that fit."""
        run = self.spec.compute.from_run
        return None if run is None else measured_times(self.directory / run, self.variant.name, self.values)

    @property
    def field(self) -> str:
        """The path of the variant in the experiment file, for error messages."""
        return f"variants.{self.position}"
