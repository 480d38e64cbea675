"""Read what a program's ranks have logged in a trial, as far as its iterations go."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from wanbed.results.records.span_log import (
    ITERATION,
    PROFILED_KINDS,
    Span,
    SpanLogContents,
    message_ranks,
    read_span_log,
)
from wanbed.results.text import count_text
from wanbed.runner.runs.faults import TrialError
from wanbed.runner.trainings.program.resolution.resolved_program import ResolvedProgram


def read_ranks(logs: Mapping[int, Path], program: ResolvedProgram, variant: str) -> list[SpanLogContents]:
    """Return the logs of the ranks that marked iterations, without what lies beyond the program's iterations.

    A program may go on after them until it is ended. Raise TrialError, one line with its remedy, if no rank has marked
    any, or one has marked fewer than the program has to do.
    """
    found = [read_span_log(path) for path in logs.values() if path.exists()]
    if not any(_ended(log) for log in found):
        raise TrialError(f"{variant}: its program ended well and no iteration was marked: {_HOW_TO_MARK}")
    for log in found:
        if (ended := _ended(log)) < program.iterations:
            raise TrialError(
                f"{variant}: its program ended well after {count_text(ended, 'iteration')} at rank {log.header.rank} "
                f"on {log.header.host}, where {program.iterations} were to be done: let it do more, or give fewer "
                "iterations"
            )
    host_of = {log.header.rank: log.header.host for log in found}
    return [_with_peers(_within(log, program.iterations), host_of) for log in found]


_HOW_TO_MARK = (
    "it stepped no optimizer of torch's, called no wanbed.mark_iteration(), or printed no line with the pattern: see "
    "marked_by"
)


def _ended(log: SpanLogContents) -> int:
    return sum(span.kind == ITERATION for span in log.spans)


def _within(log: SpanLogContents, iterations: int) -> SpanLogContents:
    """Return the log as that of a rank that ended normally: its program is ended by wanbed once it has done enough."""
    return replace(log, spans=tuple(span for span in log.spans if span.iteration < iterations), complete=True)


def _with_peers(log: SpanLogContents, host_of: Mapping[int, str]) -> SpanLogContents:
    """Return the log with the host at the other end of each message. A rank knows only the number of its peer."""

    def named(span: Span) -> Span:
        ends = message_ranks(span.kind, span.tensor)
        return span if ends is None else span._replace(peer=host_of.get(ends[span.kind == "send"], ""))

    return replace(log, spans=tuple(map(named, log.spans)))


def profiled_iterations(logs: Sequence[SpanLogContents], program: ResolvedProgram) -> int:
    """Return how many of the last iterations a profiler has recorded: none where no rank left what it saw.

    A program without torch has no profiler, and that of a torch may fail.
    """
    seen = any(span.kind in PROFILED_KINDS for log in logs for span in log.spans)
    return program.profiled if seen else 0


def measured_ns(logs: Sequence[SpanLogContents], program: ResolvedProgram, profiled_iterations: int) -> tuple[int, int]:
    """Return when the measured iterations began and ended, since the trial's start, by the last rank in each case."""
    first, last = program.warmup, program.iterations - profiled_iterations - 1
    edges = [span for log in logs for span in log.spans if span.kind == ITERATION]
    return (
        max(span.start_ns for span in edges if span.iteration == first),
        max(span.end_ns for span in edges if span.iteration == last),
    )


def unmarked(logs: Sequence[SpanLogContents], ranks: int) -> list[int]:
    """Return the ranks that marked no iteration, of so many."""
    return sorted(set(range(ranks)) - {log.header.rank for log in logs})
