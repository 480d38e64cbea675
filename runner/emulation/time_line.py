"""Put what ranks on several machines have logged on one time line, and check that effects come after causes there."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any, NamedTuple

from wanbed.results.records.span_log import Span, SpanLogContents
from wanbed.runner.emulation.running_trial import Ended, RunningTrial, Trained
from wanbed.runner.resolve.dilation import undilated_log, undilated_ns
from wanbed.runner.runs.faults import TrialError
from wanbed.testbed.rack.driver.machine_clock import TimeLine


def on_time_line(trial: RunningTrial, ended: Ended) -> Trained:
    """Return what a training has left on one time line, undilated. Nothing runs any more."""
    line, dilation = trial.testbed.end_trial(), trial.setting.dilation
    jobs = [ended.logs, *ended.others]
    found, clocks = on_one_time_line(line, [*chain(*jobs)], arrivals=ended.arrivals, whole=ended.whole)
    return Trained(
        [undilated_log(log, dilation) for log in found[: len(ended.logs)]],
        line,
        ended.whole,
        ended.measured_ns,
        while_all_ran_ns(found, [len(job) for job in jobs], dilation),
        {**clocks, **ended.facts(line)},
    )


def while_all_ran_ns(logs: Sequence[SpanLogContents], of_jobs: Sequence[int], dilation: float) -> int | None:
    """Return when the first job had done its last iteration, None if there is one; ``of_jobs`` are their logs' numbers.

    Those of each job follow those of the one before. It is in undilated nanoseconds since the trial's start.
    """
    if len(of_jobs) == 1:
        return None
    left = iter(logs)
    ends_ns = [max(span.end_ns for log in islice(left, count) for span in log.spans) for count in of_jobs]
    return undilated_ns(min(ends_ns), dilation)


def on_one_time_line(
    line: TimeLine | None, logs: Sequence[SpanLogContents], *, arrivals: bool = True, whole: bool = True
) -> tuple[Sequence[SpanLogContents], dict[str, Any]]:
    """Return the logs with times on this machine's clock, and the entry ``clocks`` of the trial's record.

    ``line`` is the trial's; where all hosts are on this machine they are so already, there is no line and no entry.
    ``arrivals`` is whether a span ``receive`` begins when the message comes, as with ranks of ours; otherwise it begins
    when somebody waits for it. ``whole`` is whether every message is logged at both ends: not where ranks were killed.
    Raise TrialError if a message was received before it was sent, by more than clocks are known.
    """
    if line is None:
        return logs, {}
    moved = [moved_log(log, line) for log in logs]
    if arrivals:
        check_order(moved, line.error_ns, whole=whole)
    return moved, {"clocks": line.facts()}


def moved_log(log: SpanLogContents, line: TimeLine) -> SpanLogContents:
    """Return what a rank has logged with its times on the driver's clock."""
    host = log.header.host
    spans = tuple(
        span._replace(start_ns=line.trial_ns(host, span.start_ns), end_ns=line.trial_ns(host, span.end_ns))
        for span in log.spans
    )
    lost = tuple(replace(each, time_ns=line.trial_ns(host, each.time_ns)) for each in log.lost)
    joined = log.joined and replace(log.joined, time_ns=line.trial_ns(host, log.joined.time_ns))
    return replace(log, spans=spans, lost=lost, joined=joined)


class _Message(NamedTuple):
    """The key of a message. All messages between the same two hosts differ in it, except repeats of one message."""

    source: str
    destination: str
    pipeline: int
    iteration: int
    microbatch: int
    tensor: str
    size_bytes: int


def check_order(logs: Sequence[SpanLogContents], error_ns: Callable[[str], int], *, whole: bool = True) -> None:
    """Raise TrialError if a message was received before it was sent, by more than ``error_ns`` of both hosts together.

    Messages between two hosts that are alike count in the order of their times. Where logs are not ``whole``, a message
    that was sent and received a different number of times is not checked: nobody knows which of them is missing.
    """
    sent = _starts(logs, "send")
    for message, received_ns in _starts(logs, "receive").items():
        if not whole and len(sent.get(message, [])) != len(received_ns):
            continue
        allowed_ns = error_ns(message.source) + error_ns(message.destination)
        for sent_ns, arrived_ns in zip(sorted(sent.get(message, [])), sorted(received_ns), strict=False):
            if arrived_ns < sent_ns - allowed_ns:
                raise TrialError(
                    f"{message.destination} received from {message.source} {(sent_ns - arrived_ns) / 1e6:.3f} ms "
                    f"before that was sent (iteration {message.iteration}), where clocks are known within "
                    f"{allowed_ns / 1e6:.3f} ms: a clock was changed during the trial, run it again"
                )


def _starts(logs: Sequence[SpanLogContents], kind: str) -> dict[_Message, list[int]]:
    found = defaultdict(list)
    for message, span in _messages(logs, kind):
        found[message].append(span.start_ns)
    return found


def _messages(logs: Sequence[SpanLogContents], kind: str) -> Iterator[tuple[_Message, Span]]:
    for log in logs:
        host = log.header.host
        for span in log.spans:
            if span.kind == kind:
                source, destination = (host, span.peer) if kind == "send" else (span.peer, host)
                yield (
                    _Message(
                        source,
                        destination,
                        log.header.pipeline,
                        span.iteration,
                        span.microbatch,
                        span.tensor,
                        span.size_bytes,
                    ),
                    span,
                )
