"""Turn the events of a link into what they set at every time."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from wanbed.ground.strict_model import InputError
from wanbed.ground.units import format_duration
from wanbed.testbed.network.links.over_time.course_spec import EventSpec


def event_timeline(
    events: Sequence[EventSpec], where: str, left_out: Collection[str] = ()
) -> list[tuple[int, dict[str, Any]]]:
    """Return the values that the events set from each time on, until the next; the times rise.

    Of the events that hold at a time, the one that began last sets a field. Fields in ``left_out`` are left out.
    ``where`` is the field of the file with the events. Raise InputError if two events set a field from one time on.
    """
    _check_begins(events, where)
    times = sorted({time_ns for event in events for time_ns in _times(event)})
    latest_last = sorted(events, key=lambda event: event.at)

    def values_at(time_ns: int) -> dict[str, Any]:
        holding = (event for event in latest_last if _holds(event, time_ns))
        return {name: event.value(name) for event in holding for name in event.fields if name not in left_out}

    return [(time_ns, values_at(time_ns)) for time_ns in times]


def _times(event: EventSpec) -> Iterator[int]:
    yield event.at
    if event.lasts is not None:
        yield event.at + event.lasts


def _holds(event: EventSpec, time_ns: int) -> bool:
    return event.at <= time_ns and (event.lasts is None or time_ns < event.at + event.lasts)


def _check_begins(events: Sequence[EventSpec], where: str) -> None:
    first: dict[tuple[int, str], int] = {}
    for position, event in enumerate(events):
        for name in event.fields:
            earlier = first.setdefault((event.at, name), position)
            if earlier != position:
                written = "down" if name == "up" else name
                raise InputError(
                    f"{where}.{position}.{written}: event {earlier} sets it at {format_duration(event.at)} as well: "
                    "merge the two"
                )
