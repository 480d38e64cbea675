"""When the iterations of a trial ended, and what had crossed the WAN by then: the clock of its losses."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from results.metrics.iterations import NS_PER_S
from results.metrics.losses.loss_curve import Iterations, Numbers, counted_until
from results.reading.run import Run
from results.reading.stored_trial import StoredTrial
from results.reading.summaries.counted_windows import counted_windows
from results.reading.trial_frames import rows_of_trial

ClockKind = Literal["measured", "virtual", "simulated"]

_CLOCK_WORDS: dict[ClockKind, str] = {
    "measured": "clock measured",
    "virtual": "clock of virtual time",
    "simulated": "clock simulated",
}


@dataclass(frozen=True)
class Provenance:
    """Where losses and their clock come from. ``clock_run`` is the run of the clock, "" if it is that of the losses."""

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
    """When each iteration of a trial ended, in nanoseconds since the start of the first, by iteration.

    ``wan_bytes`` is what had crossed the WAN since then, headers included; None if no link was sampled.
    """

    end_ns: "pd.Series[int]"
    wan_bytes: "pd.Series[float] | None"

    def time_s(self, iterations: Iterations) -> Numbers:
        """Return when these iterations ended, in seconds."""
        return self.end_ns.loc[iterations].to_numpy(np.float64) / NS_PER_S

    def crossed_bytes(self, iterations: Iterations) -> Numbers | None:
        """Return what had crossed the WAN when these iterations ended."""
        return None if self.wan_bytes is None else self.wan_bytes.loc[iterations].to_numpy(np.float64)


def clock_kind(run: Run) -> ClockKind:
    """Return what kind of clock a run's times are of."""
    if run.simulated:
        return "simulated"
    return "virtual" if run.manifest.get("clock") == "virtual" else "measured"


def trial_clock(run: Run, trial: StoredTrial) -> TrialClock:
    """Return the clock of a trial; without iterations if it has no span."""
    spans, samples = rows_of_trial(run.spans, trial), rows_of_trial(run.link_samples, trial)
    windows = counted_windows(trial, spans)
    if windows.empty:
        return TrialClock(pd.Series(dtype="int64"), None)
    start_ns = int(windows["start_ns"].min())
    # No iteration ends after a later one: some rank is the last in both, and finishes them in order.
    end_ns = windows["end_ns"].sort_index().cummax()
    links = samples[(samples["scope"] == "link").to_numpy(bool)]
    crossed: pd.Series[float] | None = None
    if not links.empty:
        total = np.zeros(len(end_ns))
        at_ns = np.append(start_ns, end_ns.to_numpy(np.int64))
        for _, own in links.sort_values("time_ns", kind="stable").groupby(["source", "destination"], observed=True):
            counts = counted_until(own["time_ns"].to_numpy(np.int64), own["wire_bytes"].to_numpy(np.int64), at_ns)
            total += counts[1:] - counts[0]
        crossed = pd.Series(total, index=end_ns.index)
    elif spans["datacenter"].nunique() == 1:
        crossed = pd.Series(0.0, index=end_ns.index)
    return TrialClock(end_ns - start_ns, crossed)
