"""Find schedules by name: those of this package, and those of other installed packages.

A package adds a schedule, a subclass of ``Schedule``, by an entry point in the group ``wanbed.schedules``. Names are
looked up when an experiment is read. A rank gets the path of the class. A schedule that no package registers is given
by that path in place of a name.
"""

from collections.abc import Mapping, Sequence

from wanbed.ground.entry_points import installed
from wanbed.ground.errors import InputError, did_you_mean
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.schedule import Schedule, create_schedule

ENTRY_POINT_GROUP = "wanbed.schedules"


def schedule_names() -> tuple[str, ...]:
    """Return the names of all schedules, sorted."""
    return tuple(sorted({entry.name for entry in installed(ENTRY_POINT_GROUP)}))


def schedule_class_path(name: str, *, also: Sequence[str] = ()) -> str:
    """Return ``"package.module:Class"`` of the schedule of that name, which may be such a path itself.

    ``also`` are further names, handled by the caller, that the error message offers too. Raise InputError if no package
    or several have that name.
    """
    if ":" in name:
        return name
    paths = {entry.value for entry in installed(ENTRY_POINT_GROUP) if entry.name == name}
    if len(paths) > 1:
        raise InputError(f"schedule: several packages bring a schedule {name!r} ({', '.join(sorted(paths))}), keep one")
    if not paths:
        names = sorted((*schedule_names(), *also))
        known = f"there are {', '.join(names)}"
        raise InputError(f"schedule: no schedule {name!r}, {did_you_mean(name, names, known)}")
    return paths.pop()


def schedule_by_name(name: str, shape: PipelineShape, options: Mapping[str, object] | None = None) -> Schedule:
    """Create a schedule for one iteration of one pipeline.

    Raise InputError for an unknown name, a class that cannot be loaded, or options or a shape that the schedule
    refuses.
    """
    try:
        return create_schedule(schedule_class_path(name), shape, options or {})
    except ValueError as refusal:
        raise InputError(f"schedule: {refusal}") from None
