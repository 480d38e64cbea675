"""Define ``compute.jitter``: how compute times vary from one action to the next."""

from pydantic import Field, model_validator

from wanbed.ground.strict_model import StrictModel
from wanbed.ground.units import Fraction, format_fraction
from wanbed.workloads.compute.varied_durations import MAX_SPREADS, Distribution, Jitter


class JitterSpec(StrictModel):
    """Compute times that vary: each action's time is multiplied by a factor of its own, drawn with mean 1.

    A draw depends only on ``seed``, the repeat, pipeline, stage and iteration, the kind of action and its microbatch.
    So simulation and replay draw the same times, and all variants of a sweep point do.
    """

    distribution: Distribution = Field(
        default=Distribution.NORMAL,
        description="Distribution of the factor. `normal` is cut off at zero; `lognormal` and `gamma` have a longer "
        "tail of slow actions; `uniform` has none.",
        examples=["gamma"],
    )
    spread: Fraction = Field(
        description="Standard deviation of the factor: 5% varies a time of 20ms by 1ms. At most 30% for `normal`, 57% "
        "for `uniform`, otherwise 100%. 0% is no jitter.",
        examples=["5%"],
    )

    @model_validator(mode="after")
    def _spread_fits(self) -> "JitterSpec":
        most = MAX_SPREADS[self.distribution]
        if self.spread > most:
            raise ValueError(
                f"spread: {format_fraction(self.spread)} of a {self.distribution} distribution makes times of zero or "
                f"less: give at most {format_fraction(most)}, or distribution: gamma or lognormal"
            )
        return self

    @property
    def jitter(self) -> Jitter | None:
        """The jitter that is drawn, None if the spread is zero."""
        return Jitter(self.distribution, self.spread) if self.spread else None
