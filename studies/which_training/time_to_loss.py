"""Join what was learnt with the map: the time to a loss is iterations to it x the simulated time of an iteration."""

from collections.abc import Sequence
from dataclasses import dataclass

from studies.which_training.grid import Grid
from studies.which_training.learning import Curve, common_loss, iterations_to_loss, learner_of
from studies.which_training.setting import Method, Wan
from wanbed.results.text import list_text, table_line

SHOWN_MS = 50
"""The latency of the table of times: the others differ by less than its figures show."""


@dataclass(frozen=True)
class LossTimes:
    """The map joined with learning: what each method takes to ``loss``, the lowest that every training reached."""

    grid: Grid
    curves: Sequence[Curve]
    loss: float

    @classmethod
    def of(cls, grid: Grid, curves: Sequence[Curve]) -> "LossTimes":
        """Join them at the lowest common loss."""
        return cls(grid, curves, common_loss(curves))

    def iterations(self, method: Method) -> tuple[float, int, int]:
        """Return the median over seeds of the iterations that a method takes, the fewest and the most."""
        return iterations_to_loss(self.curves, learner_of(method), self.loss)

    def time_s(self, method: Method, wan: Wan) -> float:
        """Return the joined time to the loss: median iterations x the simulated time of one at that WAN."""
        return self.iterations(method)[0] * self.grid.price(wan, method).iteration_s

    def soonest(self, wan: Wan) -> tuple[Method, ...]:
        """Return the methods with the shortest joined time; several where iterations are as many to the seed.

        A method counts if its time with the fewest iterations of any seed is below the shortest with the most.
        """
        least_s = min(self.iterations(method)[2] * self.grid.price(wan, method).iteration_s for method in Method)
        return tuple(
            method
            for method in Method
            if self.iterations(method)[1] * self.grid.price(wan, method).iteration_s <= least_s
        )


def learning_text(times: LossTimes) -> str:
    """Return the tables of what was learnt, and of the joined times."""
    return "\n\n".join((f"Held-out loss to reach: {times.loss:.2f}.", _iterations(times), _joined(times)))


def _iterations(times: LossTimes) -> str:
    base = times.iterations(Method.ATLAS)[0]
    lines = [
        table_line(
            [
                "learns as",
                "best learning rate",
                "iterations to the loss (fewest to most of the seeds)",
                "tokens, times those of DP",
            ]
        ),
        table_line(["---"] * 4),
    ]
    seen = dict.fromkeys(learner_of(method) for method in Method)
    for learner in seen:
        own, least, most = iterations_to_loss(times.curves, learner, times.loss)
        rate = next(curve.learning_rate for curve in times.curves if curve.learner == learner)
        lines.append(table_line([learner, f"{rate:g}", f"{own:g} ({least} to {most})", f"{own / base:.2f}x"]))
    return "\n".join(lines)


def _joined(times: LossTimes) -> str:
    wans = [wan for wan in times.grid.wans if wan.latency_ms == SHOWN_MS]
    rows = [
        table_line([f"minutes at {SHOWN_MS} ms", *(f"{wan.rate_gbps_text} Gbit/s" for wan in wans)]),
        table_line(["---"] * (len(wans) + 1)),
        *(table_line([method, *(f"{times.time_s(method, wan) / 60:.1f}" for wan in wans)]) for method in Method),
        table_line(["soonest, as far as seeds tell", *(list_text(list(times.soonest(wan))) for wan in wans)]),
    ]
    return "\n".join(rows)
