"""One attempt at a trial's training: which iterations it did, when it began and ended, and who noticed its end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from wanbed.results.records.span_log import COMPUTE_KINDS, PREFILL, SpanLogContents
from wanbed.runner.companions.faults.on_hosts.injection import InjectedFault
from wanbed.runner.emulation.rank_processes import RankEnd
from wanbed.runner.resolve.resolved_variant import ResolvedVariant


@dataclass(frozen=True)
class Attempt:
    """The training from ``first_iteration`` on, until the end or until a fault.

    Times are CLOCK_MONOTONIC, dilated if the run is. ``began_ns`` is None if a fault came before all ranks were ready.
    ``logs`` are what the ranks logged, ``ends`` how they ended if one failed, else (). ``faults`` are those that
    happened meanwhile, ``cause`` is the first failure in its own words.
    """

    variant: ResolvedVariant
    first_iteration: int
    began_ns: int | None
    logs: tuple[SpanLogContents, ...]
    ends: tuple[RankEnd, ...] = ()
    faults: tuple[InjectedFault, ...] = ()
    cause: str = ""

    @property
    def done(self) -> int:
        """The number of iterations of the whole training that every rank has finished."""
        return min((_done(log, self.first_iteration) for log in self.logs), default=self.first_iteration)

    @property
    def hits(self) -> tuple[InjectedFault, ...]:
        """The faults that concerned any rank."""
        return tuple(each for each in self.faults if each.ranks)

    @property
    def failed_ns(self) -> int | None:
        """The time of the first fault that concerned a rank, or else the time when the first rank had ended."""
        if self.hits:
            return self.hits[0].applied_ns
        return min((end.ended_ns for end in self.ends if end.status and end.ended_ns is not None), default=None)

    @property
    def survivors(self) -> tuple[RankEnd, ...]:
        """The ends of those ranks that no fault has killed."""
        killed = {rank for each in self.faults if each.fault.kind != "gateway" for rank in each.ranks}
        return tuple(end for end in self.ends if end.rank not in killed)

    @property
    def all_knew_ns(self) -> int | None:
        """The time when the last surviving rank had ended because of its lost peers; None if one never noticed."""
        times_ns = [end.ended_ns for end in self.survivors]
        known = [time_ns for time_ns in times_ns if time_ns is not None]
        return None if len(known) < len(times_ns) else max(known, default=self.failed_ns)

    @property
    def said(self) -> tuple[tuple[int, str], ...]:
        """The last line that each surviving rank printed, with its rank. The first rank to end comes first."""
        spoken = [end for end in self.survivors if end.ended_ns is not None and end.line]
        return tuple((end.rank, end.line) for end in sorted(spoken, key=lambda end: end.ended_ns or 0))


def kept(logs: Iterable[SpanLogContents], first: int, end: int) -> tuple[SpanLogContents, ...]:
    """Return the logs as if they had only the iterations from ``first`` to before ``end``, and had ended well."""
    return tuple(
        replace(
            log,
            spans=tuple(span for span in log.spans if first <= span.iteration < end),
            losses=tuple(each for each in log.losses if first <= each[0] < end),
            complete=True,
        )
        for log in logs
    )


def each_iteration_once(logs: Sequence[SpanLogContents]) -> tuple[SpanLogContents, ...]:
    """Return the logs, of which later ones are of ranks that came back, without iterations that these did again."""
    found = []
    for number, log in enumerate(logs):
        again = [
            later.joined.iteration
            for later in logs[number + 1 :]
            if later.joined is not None and later.header.rank == log.header.rank
        ]
        found.append(log if not again else replace(*kept([log], 0, min(again)), complete=log.complete))
    return tuple(found)


def iteration_windows_ns(logs: Sequence[SpanLogContents]) -> dict[int, tuple[int, int]]:
    """Return when each iteration took place: from the first start to the last end of its work and messages."""
    found: dict[int, tuple[int, int]] = {}
    for log in logs:
        for span in log.spans:
            if span.kind != PREFILL:
                start_ns, end_ns = found.get(span.iteration, (span.start_ns, span.end_ns))
                found[span.iteration] = min(start_ns, span.start_ns), max(end_ns, span.end_ns)
    return found


def covered_ns(windows: Iterable[tuple[int, int]]) -> int:
    """Return the time that windows cover together; where they overlap, it counts once."""
    total_ns = 0
    reached_ns: int | None = None
    for start_ns, end_ns in sorted(windows):
        begin_ns = start_ns if reached_ns is None else max(start_ns, reached_ns)
        total_ns += max(0, end_ns - begin_ns)
        reached_ns = end_ns if reached_ns is None else max(reached_ns, end_ns)
    return total_ns


def _done(log: SpanLogContents, first: int) -> int:
    # A rank logs what it computed when it has finished the iteration, all at once.
    return max((span.iteration + 1 for span in log.spans if span.kind in COMPUTE_KINDS), default=first)
