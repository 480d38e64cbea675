"""Read the clock of a trial's losses: when its iterations ended, and what had crossed the WAN by then."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from wanbed.results.metrics.iterations import NS_PER_S, iteration_windows
from wanbed.results.metrics.loss_curve import Iterations, Numbers, counted_until
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.reading.summaries.counted_windows import counted_windows
from wanbed.results.reading.trial_frames import rows_of_trial

ClockKind = Literal["measured", "virtual", "simulated"]

_CLOCK_WORDS: dict[ClockKind, str] = {
    "measured": "clock measured",
    "virtual": "clock of virtual time",
    "simulated": "clock simulated",
}


@dataclass(frozen=True)
class Provenance:
    """The sources of losses and their clock. ``clock_run`` is the run of the clock, "" if that is the losses' run."""

    clock: ClockKind
    clock_run: str = ""

    @property
    def joined(self) -> bool:
        """Whether losses and clock are of two runs."""
        return bool(self.clock_run)

    @property
    def text(self) -> str:
        """The provenance for readers: ``losses measured, clock simulated (run X)``."""
        if not self.joined:
            return "losses and clock measured"
        return f"losses measured, {_CLOCK_WORDS[self.clock]} (run {self.clock_run})"


@dataclass(frozen=True, eq=False)
class TrialClock:
    """The end of each of ``iterations``, which rise, in nanoseconds since the start of the first iteration.

    ``wan_bytes`` are the bytes that had crossed the WAN since then, headers included; None if no link was sampled.
    """

    iterations: Iterations
    end_ns: Iterations
    wan_bytes: Numbers | None

    def has(self, iterations: Iterations) -> npt.NDArray[np.bool_]:
        """Return which of these iterations it has."""
        return np.isin(iterations, self.iterations)

    def time_s(self, iterations: Iterations) -> Numbers:
        """Return when these iterations ended, in seconds. It must have them."""
        return self.end_ns[np.searchsorted(self.iterations, iterations)] / NS_PER_S

    def crossed_bytes(self, iterations: Iterations) -> Numbers | None:
        """Return what had crossed the WAN when these iterations ended. It must have them."""
        return None if self.wan_bytes is None else self.wan_bytes[np.searchsorted(self.iterations, iterations)]


def clock_kind(run: Run) -> ClockKind:
    """Return what kind of clock a run's times are of."""
    if run.simulated:
        return "simulated"
    return "virtual" if run.manifest.get("clock") == "virtual" else "measured"


def trial_clock(run: Run, trial: StoredTrial) -> TrialClock:
    """Return the clock of a trial; without iterations if it has no span."""
    spans, samples = rows_of_trial(run.spans, trial), rows_of_trial(run.link_samples, trial)
    windows = counted_windows(trial, iteration_windows(spans))
    if windows.empty:
        return TrialClock(np.empty(0, np.int64), np.empty(0, np.int64), None)
    start_ns = int(windows["start_ns"].min())
    end_ns = windows["end_ns"].to_numpy(np.int64)
    links = samples[(samples["scope"] == "link").to_numpy(bool)]
    crossed: Numbers | None = None
    if not links.empty:
        crossed = np.zeros(len(end_ns))
        at_ns = np.append(start_ns, end_ns)
        for _, own in links.sort_values("time_ns", kind="stable").groupby(["source", "destination"], observed=True):
            counts = counted_until(own["time_ns"].to_numpy(np.int64), own["wire_bytes"].to_numpy(np.int64), at_ns)
            crossed += counts[1:] - counts[0]
    elif spans["datacenter"].nunique() == 1:
        crossed = np.zeros(len(end_ns))
    return TrialClock(windows.index.to_numpy(np.int64), end_ns - start_ns, crossed)
