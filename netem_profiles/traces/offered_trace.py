"""Read what others send over a link as CSV: the columns ``t_s`` and ``rate``, where a rate may be zero."""

from functools import lru_cache

from wanbed.ground.units import parse_rate_bps
from wanbed.netem_profiles.traces.csv_trace import trace_of_columns
from wanbed.testbed.network.links.condition_trace import ConditionTrace

_NOTHING = frozenset({"0bit", "0kbit", "0Mbit", "0Gbit"})
"""The notations of a rate of zero. ``wanbed learn-link`` writes the first."""


def _offered_bps(cell: str) -> int:
    if cell.strip() in _NOTHING:
        return 0
    rate_bps = parse_rate_bps(cell)
    if rate_bps is None:
        raise ValueError("unlimited is no rate of a trace: give a rate like 200Mbit, or 0bit")
    return rate_bps


@lru_cache(maxsize=32)
def offered_trace(text: str, file: str, source: str) -> ConditionTrace:
    """Return the rates in a CSV text, in bit/s: each row has a ``rate``, but the last one may have none.

    ``file`` starts messages, ``source`` is what reports call it. Raise LocatedError, one line with file and line.
    """
    trace = trace_of_columns(text, file, source, {"rate": _offered_bps})
    for row in trace.rows[:-1]:
        if not row.values:
            raise trace.fault(row, "rate: it is empty: give a rate, or 0bit for none")
    return trace
