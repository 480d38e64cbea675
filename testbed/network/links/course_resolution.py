"""Work out how one direction of a link changes: its constants, and above them trace, generator and events."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from wanbed.ground.errors import InputError
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.ground.units import format_duration
from wanbed.testbed.network.links.condition_trace import ConditionTrace
from wanbed.testbed.network.links.drawn_timeline import drawn_timeline
from wanbed.testbed.network.links.link_spec import FIGURES, EventSpec, GenerateSpec
from wanbed.testbed.network.links.wan_link import MAX_CHANGES, LinkConditions, LinkCourse, Values, course_of
from wanbed.testbed.network.topology_spec import WanSpec


def _event_timeline(
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


MAX_ALL_CHANGES = 1_000_000
"""The most changes of all links of a topology together; courses that are equal count once."""

_CHANGING = ("trace", "loop", "events", "generate")

Written = TypeVar("Written")

_Timeline = Sequence[tuple[int, Values]]
"""Values from each time on, until the next."""


@dataclass(frozen=True)
class Level:
    """An entry of the file that has something to say about a direction of a link; ``where`` is its place there.

    ``drawn_for`` names the link, or the direction, in the draws of ``generate``.
    """

    spec: WanSpec
    where: str
    drawn_for: str


@dataclass(frozen=True)
class _Written(Generic[Written]):
    """The ``trace``, ``generate`` or ``events`` of the last level that has it.

    ``hidden`` are the fields to which a later level gives a constant.
    """

    value: Written
    level: Level
    hidden: frozenset[str]


class Courses:
    """The courses of the links of one topology. Directions with equal constants and levels share one."""

    def __init__(self, traces: Mapping[str, ConditionTrace], seed: int) -> None:
        self._traces = traces
        self._seed = seed
        self._found: dict[object, LinkCourse] = {}
        self._changes = 0

    def of(self, base: LinkConditions, levels: Sequence[Level]) -> tuple[LinkConditions, LinkCourse | None]:
        """Return a direction's first conditions, and its course, None if none is written.

        ``base`` are its constants; see ``course_by_levels``. Raise InputError if all courses so far have more than
        ``MAX_ALL_CHANGES`` changes.
        """
        if not any(getattr(level.spec, name) for level in levels for name in _CHANGING):
            return base, None
        drawn_for = levels[-1].drawn_for if any(level.spec.generate for level in levels) else None
        key = base, drawn_for, tuple(id(level.spec) for level in levels)
        if key not in self._found:
            course = self._found[key] = course_by_levels(base, levels, self._traces, self._seed)
            self._changes += len(course.changes)
            if self._changes > MAX_ALL_CHANGES:
                raise InputError(
                    f"{levels[-1].where}: all links together have more than {MAX_ALL_CHANGES} changes: give shorter "
                    "traces, or longer steps"
                )
        course = self._found[key]
        if len(course.changes) == 1 and not course.first.up:
            raise InputError(f"{levels[-1].where}: it is down from the beginning on, for ever: let it come back")
        return course.first, course


def course_by_levels(
    base: LinkConditions, levels: Sequence[Level], traces: Mapping[str, ConditionTrace], seed: int
) -> LinkCourse:
    """Return how a direction with the constants ``base`` changes, if only at its beginning.

    Of ``trace``, ``generate`` and ``events`` the last of the ``levels`` that has one counts, without the fields to
    which a later one gives a constant. Where a generator draws, it draws on ``base``; events lie above both.
    ``traces`` has each trace by the path that is written. Raise InputError for what does not go together.
    """
    trace = _last(levels, "trace", lambda spec: spec.trace)
    drawn = _last(levels, "generate", lambda spec: spec.generate)
    events = _last(levels, "events", lambda spec: spec.events)
    timelines: list[_Timeline] = []
    sources: list[str] = []
    periods: list[tuple[str, int]] = []
    if trace is not None:
        found = traces[trace.value.key]
        period_ns = found.period_ns(trace.level.spec.loop)
        if period_ns is not None:
            periods.append((trace.level.where, period_ns))
        timelines.append(_rows(found, base, trace.hidden, period_ns))
        sources.append(found.source)
        if drawn is not None and (both := sorted(drawn.value.fields & found.fields - drawn.hidden)):
            raise InputError(
                f"{drawn.level.where}.generate: the trace {found.source} gives {both[0]} already: leave one of them out"
            )
    if drawn is not None:
        spec = drawn.value
        _check_drawn_on(base, drawn)
        period_ns = _drawn_period(spec, drawn.level)
        if period_ns is not None:
            periods.append((drawn.level.where, period_ns))
        timelines.append(
            [
                (at_ns, _without(values, drawn.hidden))
                for at_ns, values in drawn_timeline(spec, base, f"seed {seed}, {drawn.level.drawn_for}")
                if period_ns is None or at_ns < period_ns
            ]
        )
        sources.append(f"generated: {', '.join(name.replace('_', ' ') for name in spec.drawn)}")
    if events is not None:
        timelines.append(_event_timeline(events.value, f"{events.level.where}.events", events.hidden))
        sources.append("events")
    _check_loop(levels, periods, len(timelines))
    course = course_of(
        _merged(base, timelines),
        period_ns=periods[0][1] if periods else None,
        source=" + ".join(sources),
        synthetic=drawn is not None,
    )
    if len(course.changes) > MAX_CHANGES:
        raise InputError(
            f"{levels[-1].where}: {len(course.changes)} changes of a link, more than {MAX_CHANGES}: give fewer"
        )
    return course


def _last(
    levels: Sequence[Level], name: str, value_of: Callable[[WanSpec], Written | None]
) -> _Written[Written] | None:
    """Return the last level that has ``name``, None if none has it or the last one takes it away."""
    hidden: frozenset[str] = frozenset()
    for level in reversed(levels):
        if name in level.spec.model_fields_set:
            value = value_of(level.spec)
            return _Written(value, level, hidden) if value else None
        hidden |= level.spec.model_fields_set & {*FIGURES}
    return None


def _rows(trace: ConditionTrace, base: LinkConditions, hidden: Collection[str], period_ns: int | None) -> _Timeline:
    """Return the rows that hold. Raise LocatedError for one that is impossible on this link."""
    timeline: list[tuple[int, Values]] = []
    for row in trace.within(period_ns):
        values = _without(row.values, hidden)
        conditions = base.with_values(values)
        for each, value in conditions.impairments.items():
            if each.is_duration and value > conditions.latency_ns:
                raise trace.fault(
                    row,
                    f"the {each.label} of {format_duration(value)} is above the latency, which is then "
                    f"{format_duration(conditions.latency_ns)}: no packet arrives before it was sent",
                )
        timeline.append((row.at_ns, values))
    return timeline


def _check_drawn_on(base: LinkConditions, written: _Written[GenerateSpec]) -> None:
    spec = written.value
    name = "diurnal" if spec.diurnal is not None else "markov"
    check_exclusions(
        Exclusion(
            f"{written.level.where}.generate.{name}",
            "the link is unlimited, there is no rate to vary",
            "give rate",
            when="rate" in spec.fields and base.pair_rate_bps is None,
        )
    )


def _drawn_period(spec: GenerateSpec, level: Level) -> int | None:
    loop = level.spec.loop
    if loop is not True and loop is not False and loop < spec.length:
        raise InputError(
            f"{level.where}.loop: {format_duration(loop)} is less than the {format_duration(spec.length)} of "
            "generate.length: give that or more, or true"
        )
    return None if loop is False else spec.length if loop is True else loop


def _check_loop(levels: Sequence[Level], periods: Sequence[tuple[str, int]], timelines: int) -> None:
    """Raise InputError for a ``loop`` with nothing to repeat, or beside what does not repeat with it."""
    for level in levels:
        if level.spec.loop is not False and not (level.spec.trace or level.spec.generate):
            raise InputError(f"{level.where}.loop: there is no trace and no generate here that could begin anew")
    if periods and timelines > 1:
        raise InputError(
            f"{periods[0][0]}.loop: what begins anew stands alone: leave loop out, or leave one trace or generate, and "
            "no events"
        )


def _without(values: Values, hidden: Collection[str]) -> Values:
    return {name: value for name, value in values.items() if name not in hidden} if hidden else values


def _merged(base: LinkConditions, timelines: Sequence[_Timeline]) -> Iterator[tuple[int, LinkConditions]]:
    """Yield the conditions at every time at which one of the timelines changes; later timelines lie above."""
    changes: dict[int, dict[int, Values]] = {0: {}}
    for position, timeline in enumerate(timelines):
        for at_ns, values in timeline:
            changes.setdefault(at_ns, {})[position] = values
    now: dict[int, Values] = {}
    for at_ns in sorted(changes):
        now |= changes[at_ns]
        above: dict[str, Any] = {}
        for position in sorted(now):
            above.update(now[position])
        yield at_ns, base.with_values(above)
