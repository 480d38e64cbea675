"""Draw the process at the top of a trace: each trial and its iterations."""

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from wanbed.results.perfetto.lanes import assign_lanes
from wanbed.results.perfetto.trace_events import json_text
from wanbed.results.perfetto.tracks import Tracks
from wanbed.results.perfetto.trial_tables import Spans
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.records.span_log import COMPUTE_KINDS, ITERATION, JOINT_KINDS

_WORK = (*COMPUTE_KINDS, *JOINT_KINDS)


def trial_event(trial: StoredTrial, tracks: Tracks, begin_ns: int, end_ns: int) -> str:
    """Return the slice of a whole trial, as one line."""
    about = {"sweep_point": trial.point, "swept": trial.values, "variant": trial.variant, "repeat": trial.repeat}
    return (
        f'{{"ph":"X","pid":{tracks.trials},"tid":{tracks.trial_thread},"ts":{microseconds(begin_ns)},'
        f'"dur":{microseconds(end_ns - begin_ns)},"name":{json_text(trial.title)},"cat":"trial",'
        f'"args":{json_text(about)}}},\n'
    )


def iteration_events(
    spans: Spans, trial: StoredTrial, tracks: Tracks, shift_ns: int, profiled: Set[int] = frozenset()
) -> list[str]:
    """Return the async events of all iterations, one line each; ``profiled`` are those that a profiler recorded.

    A begin and an end event make a slice. An iteration lasts from the start of its first computation or collective to
    the end of its last one, and from its first computation where replicas synchronise seldom; of a program, whose ranks
    state it, from the last rank's begin to the last one's end. Iterations may overlap; those that do not overlap share
    an id, and a slice around them that gives the track its name.
    """
    of_program = trial.program is not None
    kinds = (ITERATION,) if of_program else _WORK
    work = spans[spans.kind.mapped(lambda kind: int(kind in kinds)) == 1]
    iterations, position = np.unique(work.iteration, return_inverse=True)
    start_ns = np.full(len(iterations), np.iinfo(np.int64).min if of_program else np.iinfo(np.int64).max)
    end_ns = np.full(len(iterations), np.iinfo(np.int64).min)
    begun_ns = work.start_ns
    if trial.sync_every is not None:
        # A synchronisation begins in an earlier iteration than the one that applies it.
        begun_ns = np.where(work.kind.equal("all_reduce"), np.iinfo(np.int64).max, begun_ns)
    (np.maximum if of_program else np.minimum).at(start_ns, position, begun_ns)
    np.maximum.at(end_ns, position, work.end_ns)
    lanes = assign_lanes(np.zeros(len(iterations), np.int64), start_ns, end_ns)
    warmup = trial.warmup_iterations
    place = f'"pid":{tracks.trials},"tid":{tracks.trial_thread},"cat":"iteration"'
    events = []

    def emit(phase: str, lane: int, time_ns: int, name: str, about: Mapping[str, Any]) -> None:
        at = f'"id2":{{"local":{lane + 1}}},"ts":{microseconds(time_ns + shift_ns)}'
        events.append(f'{{"ph":"{phase}",{place},{at},"name":"{name}","args":{json_text(about)}}},\n')

    for lane in np.unique(lanes).tolist():
        own = np.flatnonzero(lanes == lane)[np.argsort(start_ns[lanes == lane])].tolist()
        emit("b", lane, int(start_ns[own[0]]), "iterations", {})
        for each in own:
            number = int(iterations[each])
            about = {"iteration": number, "measured": number >= warmup and number not in profiled}
            if of_program:
                about["profiled"] = number in profiled
            for phase, time_ns in (("b", int(start_ns[each])), ("e", int(end_ns[each]))):
                emit(phase, lane, time_ns, f"iteration {number}", about)
        emit("e", lane, int(end_ns[own[-1]]), "iterations", {})
    return events


def microseconds(time_ns: int) -> str:
    """Return a time in nanoseconds as microseconds with three decimals."""
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"
