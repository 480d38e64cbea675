"""Define what a comparison judges: iteration time, or what was learnt in a given time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from wanbed.ground.shown_text import shown
from wanbed.ground.strict_model import InputError
from wanbed.ground.units import format_duration, parse_duration_ns
from wanbed.results.text import seconds_text

MetricKind = Literal["iteration-time", "loss-at", "time-to"]
METRICS = ("loss-at", "time-to")
"""The metrics that a user may name, each with its argument."""

_NS_PER_S = 1e9


@dataclass(frozen=True)
class Metric:
    """A figure of a trial of which less is better: a comparison judges the ratio of B's to A's.

    ``at`` is the time in seconds of ``loss-at``, or the loss of ``time-to``. ``field`` is the figure's name in JSON;
    ``worse`` and ``better`` say what a ratio above and below 1 means, ``equal`` what 1 means.
    """

    kind: MetricKind
    name: str
    field: str
    at: float = 0.0
    worse: str = "slower"
    better: str = "faster"
    equal: str = "equally fast"
    draw: str = "repeat"

    @property
    def of_losses(self) -> bool:
        """Whether it is about what was learnt; then seeds are what chance draws, and not repeats."""
        return self.kind != "iteration-time"

    @property
    def text(self) -> Callable[[float | None], str]:
        """The function that writes a figure for readers."""
        return loss_text if self.kind == "loss-at" else seconds_text


ITERATION_TIME = Metric("iteration-time", "iteration-time", "iteration_time_s")


def loss_text(loss: float | None) -> str:
    """Write a loss with four digits behind the point, ``n/a`` for none."""
    return "n/a" if loss is None else f"{loss:.4f}"


def parse_metric(words: Sequence[str]) -> Metric:
    """Return the metric of the words ``loss-at TIME`` or ``time-to LOSS``. Raise InputError for any others."""
    option = f"--metric {' '.join(words)}"
    if len(words) != 2 or words[0] not in METRICS:
        raise InputError(
            f"{option}: write loss-at and a time, like loss-at 60s, or time-to and a loss, like time-to 2.5"
        )
    kind, written = words
    if kind == "loss-at":
        try:
            time_ns = parse_duration_ns(written)
        except ValueError as refusal:
            raise InputError(f"{option}: {refusal}") from None
        name = f"loss-at {format_duration(time_ns)}"
        return Metric("loss-at", name, "loss", time_ns / _NS_PER_S, "higher", "lower", "equal", "seed")
    try:
        # Python reads more as a number than is meant by one: digits of other scripts, 1_0 as 10, and nan.
        loss = float(written) if written.isascii() and written.replace(".", "", 1).isdigit() else 0.0
    except ValueError:
        loss = 0.0
    if not loss > 0:
        raise InputError(f"{option}: {shown(written)} is no loss: write a number above 0, like 2.5")
    return Metric("time-to", f"time-to {loss:g}", "time_to_loss_s", loss, draw="seed")
