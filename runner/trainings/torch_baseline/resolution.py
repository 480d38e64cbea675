"""Describe a variant whose schedule is run by torch itself."""

from dataclasses import dataclass

from wanbed.runner.resolve.pipeline_variant import PipelineVariant


@dataclass(frozen=True, kw_only=True)
class BaselineVariant(PipelineVariant):
    """A variant that torch trains: ``schedule`` is the name of one of its schedules, or of data parallelism."""

    @property
    def follows_own_schedule(self) -> bool:
        """Whether ranks of wanbed follow the schedule."""
        return False

    @property
    def overlaps_all_reduce(self) -> bool:
        """Whether wanbed's all-reduces overlap: there are none."""
        return False

    @property
    def sums_gradients(self) -> bool:
        """Whether replicas sum gradients: torch's do, whatever their size is."""
        return True
