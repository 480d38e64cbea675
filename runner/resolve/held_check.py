"""Refuse what does not go with GPUs that are held until their message has arrived."""

from collections.abc import Iterator

from wanbed.ground.exclusions import Declared, Exclusion, as_check
from wanbed.runner.experiment.quantities import AUTO
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.workloads.schedules.planning.planned_schedule import PlannedSchedule
from wanbed.workloads.schedules.schedule import Schedule


@as_check
def check_held(written: WrittenVariant, schedule: type[Schedule] | None) -> Iterator[Declared]:
    """Raise InputError for what does not go with such GPUs. ``schedule`` is None for torch's own."""
    variant, field = written.variant, written.field
    held = variant.transport.holds_until_arrival
    until_left = "give held_until: left"
    yield Exclusion(
        f"{field}.transport.held_until",
        f"{variant.schedule} plans for GPUs that go on when their message has left",
        "give a schedule that is not planned, such as gpipe or 1f1b",
        when=held and schedule is not None and issubclass(schedule, PlannedSchedule),
    )
    yield Exclusion(
        f"{field}.placement",
        "the planner places stages whose GPUs go on when their message has left",
        f"{until_left}, or name the datacenters",
        when=held and variant.placement == AUTO,
        leave="",
    )
    yield Exclusion(
        f"{field}.prefill",
        "bubbles are forecast for GPUs that go on when their message has left",
        f"{until_left}, or prefill: none",
        when=held and written.is_prefilled,
        leave="",
    )
