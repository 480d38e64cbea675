"""Work out how much faster Atlas is than each baseline over a single TCP connection."""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.paper.outcome import Outcomes

FARTHEST = "40ms"
ATLAS, TUNED_ATLAS = "atlas", "atlas, no idle restart"
UNTUNED = ("gpipe", "megatron", "varuna")
"""The baselines as the paper has them."""
TUNED = ("varuna, large window", "varuna, large window, no idle restart", "varuna, bbr")
"""The baselines whose one connection is helped as far as it can be."""


@dataclass(frozen=True)
class Headline:
    """One training of which Atlas and its baselines were measured; its variants may be spread over several parts."""

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

    Times are of an iteration; ratios are the baseline's time over Atlas's, None if not run.
    """

    headline: str
    baseline: str
    baseline_s: float
    atlas: float | None
    tuned_atlas: float | None

    @property
    def most(self) -> float:
        """The larger of the two ratios, 0 where Atlas was not run."""
        return max(self.atlas or 0.0, self.tuned_atlas or 0.0)


def speed_ups(outcomes: Outcomes, headlines: Sequence[Headline] = HEADLINES) -> list[SpeedUp]:
    """Return one speed-up for each single-TCP baseline that was measured at 40 ms, training by training."""
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
