"""Describe a variant as the experiment file has it at one sweep point, before it is resolved."""

from dataclasses import dataclass
from pathlib import Path

from runner.experiment.experiment_spec import ExperimentSpec
from runner.experiment.variant_spec import VariantSpec
from testbed.network.topology import Topology


@dataclass(frozen=True)
class WrittenVariant:
    """A variant of the experiment file at one sweep point, by its position in ``variants``.

    Relative paths start at ``directory``.
    """

    spec: ExperimentSpec
    position: int
    topology: Topology
    directory: Path

    @property
    def variant(self) -> VariantSpec:
        """The variant itself."""
        return self.spec.variants[self.position]

    @property
    def field(self) -> str:
        """The path of the variant in the experiment file, for error messages."""
        return f"variants.{self.position}"
