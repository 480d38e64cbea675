"""Define a trace: some conditions of a link at rising times, as a file gives them, before they meet a link."""

from dataclasses import dataclass
from itertools import pairwise

from wanbed.ground.errors import LocatedError
from wanbed.ground.units import format_duration
from wanbed.testbed.network.links.wan_link import Values

MAX_TRACE_NS = 31 * 86_400 * 10**9
"""The latest time of a trace, 31 days."""
_LEAST_LOOPED_ROW_NS = 10**6
"""The least mean time between rows of a trace that begins anew: a trial repeats them for as long as it lasts."""


@dataclass(frozen=True)
class TraceRow:
    """From ``at_ns`` on a link has ``values``, its own constants in all other fields. ``line`` is where it stands."""

    at_ns: int
    values: Values
    line: int


@dataclass(frozen=True)
class ConditionTrace:
    """The rows of a trace, at rising times. ``file`` is how messages name it, ``source`` how reports do.

    ``end_ns`` is where it begins anew if it does: None if the last row says so.
    """

    file: str
    source: str
    rows: tuple[TraceRow, ...]
    end_ns: int | None = None

    def __post_init__(self) -> None:
        if not self.rows or any(one.at_ns >= other.at_ns for one, other in pairwise(self.rows)):
            raise ValueError("the times of a trace rise")

    @property
    def fields(self) -> frozenset[str]:
        """The fields that any row gives."""
        return frozenset(name for row in self.rows for name in row.values)

    def fault(self, row: TraceRow, fault: str) -> LocatedError:
        """Return the error for a row: one line with file and line."""
        return LocatedError(f"{self.file}:{row.line}: {fault}")

    def period_ns(self, loop: bool | int) -> int | None:
        """Return after how long the trace begins anew, None if it does not.

        ``loop`` is a period, or True for the trace's end. Raise LocatedError for a period that cuts rows off or is too
        short for its rows, and for an end that has values of its own, which would never hold.
        """
        if loop is False:
            return None
        period_ns = self._looped_ns(loop)
        rows = len(self.within(period_ns))
        if period_ns < rows * _LEAST_LOOPED_ROW_NS:
            least, each = format_duration(rows * _LEAST_LOOPED_ROW_NS), format_duration(_LEAST_LOOPED_ROW_NS)
            most = max(period_ns // _LEAST_LOOPED_ROW_NS, 1)
            remedy = f"{least} or more" if rows == 1 else f"{least} or more, or at most {most} of the rows"
            raise self.fault(
                self.rows[-1],
                f"loop: {format_duration(period_ns)} is too short for what begins anew, a row in {each} on average: "
                f"give {remedy}",
            )
        return period_ns

    def _looped_ns(self, loop: int) -> int:
        """Return ``period_ns`` for a period or True, however short it is."""
        last = self.rows[-1]
        if loop is not True:
            if loop <= last.at_ns:
                raise self.fault(
                    last, f"loop: {format_duration(loop)} ends before this row holds: give more than its time"
                )
            return loop
        if self.end_ns is not None:
            return self.end_ns
        if len(self.rows) == 1 or (last.values and last.values != self.rows[0].values):
            raise self.fault(
                last,
                "with loop: true the last row says when the trace begins anew: repeat the values of the first row or "
                "leave its cells empty, or give the period, like loop: 10min",
            )
        return last.at_ns

    def within(self, period_ns: int | None) -> tuple[TraceRow, ...]:
        """Return the rows that hold before the period ends."""
        return self.rows if period_ns is None else tuple(row for row in self.rows if row.at_ns < period_ns)
