"""Divide the measured time of all training GPUs into training, prefill in bubbles, and idle time by cause."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import pandas as pd

from wanbed.results import metrics
from wanbed.results.metrics import COLLECTIVE, IDLE_CAUSES, OTHER, TRANSFER, Window
from wanbed.results.metrics.intervals import Numbers
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import StoredTrial, swept_values
from wanbed.results.reading.trial_rows import measured_window, rows_of_trial
from wanbed.results.records.span_log import PREFILL

TRAINING = "training"
PARTS = (TRAINING, PREFILL, *IDLE_CAUSES)
"""The parts of the GPU time of a schedule."""
PROGRAM_IDLE_CAUSES = (COLLECTIVE, TRANSFER, OTHER)
PARTS_OF_PROGRAM = (TRAINING, *PROGRAM_IDLE_CAUSES)
"""The parts of the GPU time of a user's program, of which neither stages nor microbatches are known."""


@dataclass(frozen=True)
class GpuTimeShares:
    """The GPU time of one variant in one sweep point, summed over its training GPUs and repeats.

    ``parts_ns`` has the nanoseconds of each of ``PARTS``, or of ``PARTS_OF_PROGRAM``. They add up to ``total_ns``: the
    number of GPUs times the measured window, summed over repeats. Of a program's GPUs those count that were profiled,
    each from the begin of its first profiled iteration to the end of its last.
    """

    run: str
    point: int
    values: Mapping[str, str]
    variant: str
    parts_ns: Mapping[str, int]
    total_ns: int

    @property
    def bubbles_ns(self) -> int:
        """The time in which GPUs did not train, whether prefill filled it or not."""
        return self.total_ns - self.parts_ns[TRAINING]

    def share(self, part: str) -> float:
        """Return a part's share of ``total_ns``, a fraction; 0 for a part that these GPUs cannot have."""
        return self.parts_ns.get(part, 0) / self.total_ns


def gpu_time_shares(run: Run, label: str = "", points: Sequence[int] | None = None) -> list[GpuTimeShares]:
    """Return the shares of each sweep point and variant with a measured window, in the order of the run's trials.

    If ``points`` is given, only of these sweep points.
    """
    parts_ns: dict[tuple[int, str], dict[str, int]] = {}
    for trial in run.trials:
        if points is not None and trial.point not in points:
            continue
        spans = rows_of_trial(run.spans, trial)
        window = measured_window(trial, spans)
        if window is None or not window.length_ns:
            continue
        profiled = metrics.profiled_iterations(spans, trial.profiled_iterations)
        found = _of_schedule(spans, window, trial) if trial.program is None else _of_program(spans, profiled)
        sums = parts_ns.setdefault((trial.point, trial.variant), dict.fromkeys(found, 0))
        for part, part_ns in found.items():
            sums[part] += part_ns
    return [
        GpuTimeShares(label, point, swept_values(run.manifest, point), variant, sums, sum(sums.values()))
        for (point, variant), sums in parts_ns.items()
        if any(sums.values())
    ]


def _of_schedule(spans: pd.DataFrame, window: Window, trial: StoredTrial) -> dict[str, int]:
    waited = spans if trial.sync_every is None else metrics.awaited(spans)
    causes = metrics.idle_causes(waited, window, sends_block=trial.sends_block)
    alone, both = metrics.gpu_utilizations(spans, window)
    possible_ns = len(causes) * window.length_ns
    trained_ns, filled_ns = (round(each * possible_ns) for each in (alone or 0.0, (both or 0.0) - (alone or 0.0)))
    # GPUs may be watched for longer than the periods: the causes share what is idle of these as they share that.
    watched_ns = [*accumulate(map(int, causes.sum()), initial=0)]
    idle_ns = possible_ns - trained_ns - filled_ns
    edges_ns = [round(idle_ns * each / max(1, watched_ns[-1])) for each in watched_ns]
    return {
        TRAINING: trained_ns,
        PREFILL: filled_ns,
        **{str(cause): end - begin for cause, (begin, end) in zip(causes.columns, pairwise(edges_ns), strict=True)},
    }


def _of_program(spans: pd.DataFrame, profiled: Numbers) -> dict[str, int]:
    parts = metrics.program_parts(spans, profiled)
    return {
        TRAINING: int(metrics.program_busy(parts)["busy_ns"].sum()),
        **{cause: int(parts[cause].sum()) for cause in PROGRAM_IDLE_CAUSES},
    }
