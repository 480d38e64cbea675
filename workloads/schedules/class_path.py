"""Load schedules by the path of their class. A rank, which looks nothing up, gets its schedule that way."""

from collections.abc import Mapping
from importlib import import_module

from workloads.schedules.pipeline_shape import PipelineShape
from workloads.schedules.schedule import Schedule


def load_schedule(class_path: str) -> type[Schedule]:
    """Return the schedule class at ``"package.module:Class"``. Raises ValueError with the path and the fault."""
    module_name, separator, class_name = class_path.partition(":")
    if not (module_name and separator and class_name):
        raise ValueError(f"{class_path!r} is not the path of a class: write it like package.module:Class")
    try:
        module = import_module(module_name)
    except ImportError as failure:
        raise ValueError(f"{class_path}: {failure}") from failure
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, Schedule)):
        raise ValueError(f"{class_path}: {class_name} is not a subclass of workloads.schedules.schedule.Schedule")
    return found


def create_schedule(class_path: str, shape: PipelineShape, options: Mapping[str, object]) -> Schedule:
    """Make a schedule for one iteration. Raises ValueError for a path, options or a shape that do not make one."""
    schedule_class = load_schedule(class_path)
    try:
        return schedule_class(shape, **options)
    except TypeError as mismatch:
        raise ValueError(f"{class_path}: {mismatch}") from mismatch
