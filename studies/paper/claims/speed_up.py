"""Compute how much faster Atlas is than each baseline over a single TCP connection."""

from collections.abc import Sequence
from dataclasses import dataclass

from studies.paper.outcome import Outcomes

FARTHEST = "40ms"
ATLAS, TUNED_ATLAS = "atlas", "atlas, no idle restart"
UNTUNED = ("gpipe", "megatron", "varuna")
"""The baselines of the paper."""
TUNED = ("varuna, large window", "varuna, large window, no idle restart", "varuna, bbr")
"""The baselines whose single connection is tuned as far as possible."""


@dataclass(frozen=True)
class Headline:
    """A training for which Atlas and its baselines were measured. Its variants may be in several parts."""

    title: str
    parts: tuple[str, ...]


HEADLINES = (
    Headline("GPT-A, 6 stages, 2 pipelines", ("headline-gpt-a", "headline-gpt-a-fair")),
    Headline("GPT-B, 6 stages, 2 pipelines", ("headline-gpt-b", "headline-gpt-b-fair")),
    Headline("GPT-A, 12 stages, 1 pipeline", ("headline-deep",)),
)


@dataclass(frozen=True)
class SpeedUp:
    """The speed-up of Atlas over one baseline, at 40 ms.

    ``baseline_s`` is an iteration time. ``atlas`` and ``tuned_atlas`` are the baseline's time / Atlas's, None if not
    run.
    """

    headline: str
    baseline: str
    baseline_s: float
    atlas: float | None
    tuned_atlas: float | None

    @property
    def most(self) -> float:
        """The larger of the two ratios, 0 if Atlas was not run."""
        return max(self.atlas or 0.0, self.tuned_atlas or 0.0)


def speed_ups(outcomes: Outcomes, headlines: Sequence[Headline] = HEADLINES) -> list[SpeedUp]:
    """Return a speed-up for each single-TCP baseline that was measured at 40 ms, training by training."""
    found = []
    for headline in headlines:
        times_s = {
            variant: outcome.iteration_time_s
            for variant in (*UNTUNED, *TUNED, ATLAS, TUNED_ATLAS)
            if (outcome := outcomes.find(headline.parts, variant, FARTHEST)) is not None
        }
        for baseline in (*UNTUNED, *TUNED):
            baseline_s = times_s.get(baseline)
            if baseline_s is not None:
                ratios = [
                    baseline_s / atlas_s if (atlas_s := times_s.get(name)) else None for name in (ATLAS, TUNED_ATLAS)
                ]
                found.append(SpeedUp(headline.title, baseline, baseline_s, *ratios))
    return found
