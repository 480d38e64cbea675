"""Load schedules by the path of their class. A rank gets that path from the runner and looks up no names."""

from collections.abc import Mapping

from ground.class_path import load_subclass
from workloads.schedules.pipeline_shape import PipelineShape
from workloads.schedules.schedule import Schedule


def load_schedule(class_path: str) -> type[Schedule]:
    """Return the schedule class at ``"package.module:Class"``. Raise ValueError with the path and the fault."""
    return load_subclass(class_path, Schedule)


def create_schedule(class_path: str, shape: PipelineShape, options: Mapping[str, object]) -> Schedule:
    """Create a schedule for one iteration. Raise ValueError if the path, the options or the shape are not valid."""
    schedule_class = load_schedule(class_path)
    try:
        return schedule_class(shape, **options)
    except TypeError as mismatch:
        raise ValueError(f"{class_path}: {mismatch}") from mismatch
