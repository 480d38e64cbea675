"""Divide the measured time of all training GPUs into training, prefill in bubbles, and idle time by cause."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from results import metrics
from results.metrics import IDLE_CAUSES
from results.reading.run import Run
from results.reading.stored_trial import swept_values
from results.reading.trial_frames import measured_window, rows_of_trial
from results.records.span_log import PREFILL

TRAINING = "training"
PARTS = (TRAINING, PREFILL, *IDLE_CAUSES)


@dataclass(frozen=True)
class GpuTimeShares:
    """The GPU time of one variant in one sweep point, summed over its training GPUs and repeats.

    ``parts_ns`` has the nanoseconds of each of ``PARTS``. They add up to ``total_ns``: the number of GPUs times the
    measured window, summed over repeats.
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
        """Return a part's share of ``total_ns``, a fraction."""
        return self.parts_ns[part] / self.total_ns


def gpu_time_shares(run: Run, label: str = "", points: Sequence[int] | None = None) -> list[GpuTimeShares]:
    """Return the shares of each sweep point and variant with a measured window, in the order of the run's trials.

    If ``points`` is given, only of these sweep points.
    """
    parts_ns: dict[tuple[int, str], dict[str, int]] = {}
    for trial in run.trials:
        if points is not None and trial.point not in points:
            continue
        spans = rows_of_trial(run.spans, trial)
        window = measured_window(run, trial, spans)
        if window is None or not window.length_ns:
            continue
        sums = parts_ns.setdefault((trial.point, trial.variant), dict.fromkeys(PARTS, 0))
        sums[TRAINING] += int(metrics.gpu_busy(spans, window)["busy_ns"].sum())
        sums[PREFILL] += int(metrics.prefill_ns(spans, window).sum())
        for cause, idle_ns in metrics.idle_causes(spans, window).sum().items():
            sums[str(cause)] += int(idle_ns)
    return [
        GpuTimeShares(label, point, swept_values(run.manifest, point), variant, sums, sum(sums.values()))
        for (point, variant), sums in parts_ns.items()
    ]
