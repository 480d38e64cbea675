"""The goal of a plan: the most tokens a second or the least cost of a token, within a limit of cost if there is one.

The worth of a candidate is one number, and the highest is the best. It never falls where tokens a second rise or a cost
falls. So the worth of bounds, the most tokens a second and the least costs, is a bound of the worth: this makes the
searches as right for costs as for tokens a second.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from wanbed.ground.errors import InputError
from wanbed.ground.units import parse_cost
from wanbed.results.text import list_text
from wanbed.testbed.network.price_list import PriceList

PER_HOUR = "USD/h"


class Objective(StrEnum):
    """The figure of which a plan has the best."""

    TOKENS = "tokens"
    COST = "cost"


@dataclass(frozen=True)
class CostLimit:
    """The most that a plan may cost: ``usd`` an hour (unit ``USD/h``), or a million tokens (``USD/Mtoken``)."""

    usd: float
    unit: str

    def of(self, figures: "Figures") -> float:
        """Return the cost that is limited, in the limit's unit."""
        return figures.usd_per_h if self.unit == PER_HOUR else figures.usd_per_million

    @property
    def text(self) -> str:
        """The limit as ``--max-cost`` takes it."""
        return f"{self.usd:g}{self.unit}"


@dataclass(frozen=True)
class Figures:
    """The figures by which candidates are compared, or bounds of them.

    ``tokens_per_s`` are sequences a second without a model, and ``usd_per_million`` is the cost of a million of what is
    counted.
    """

    tokens_per_s: float
    usd_per_h: float
    usd_per_million: float


@dataclass(frozen=True)
class Goal:
    """Say which of two plans is better, and which are allowed."""

    objective: Objective = Objective.TOKENS
    limit: CostLimit | None = None

    @classmethod
    def of(cls, objective: str, max_cost: str | None = None) -> "Goal":
        """Return the goal of these options of the command. Raise InputError, which names the option."""
        known = next((each for each in Objective if each.value == objective), None)
        if known is None:
            raise InputError(f"--objective {objective}: there are {list_text([each.value for each in Objective])}")
        if max_cost is None:
            return cls(known)
        try:
            return cls(known, CostLimit(*parse_cost(max_cost)))
        except ValueError as refusal:
            raise InputError(f"--max-cost: {refusal}") from None

    def check(self, prices: PriceList | None, *, counts_tokens: bool) -> None:
        """Raise InputError where the goal is about costs and they are not known, or all alike."""
        options = {"--objective cost": self.objective is Objective.COST, "--max-cost": self.limit is not None}
        for option, asked in options.items():
            if asked and prices is None:
                raise InputError(
                    f"{option}: the file has no prices: give every datacenter a gpu_price like 2.10USD/h, and an "
                    "egress_price like 0.05USD/GB"
                )
        if self.objective is Objective.COST and prices is not None and not prices.any_above_zero:
            raise InputError("--objective cost: all prices of the file are 0, so that all plans cost the same")
        if self.limit is not None and self.limit.unit != PER_HOUR and not counts_tokens:
            raise InputError(
                f"--max-cost {self.limit.text}: without a model no tokens are counted: give a model, or a cost like "
                "40USD/h"
            )

    def worth(self, figures: Figures) -> float:
        """Return what a candidate with these figures is worth, above 0 within the limit and below 0 beyond it.

        Within the limit it is the tokens a second, or the tokens for a million US dollars; beyond it the cost that is
        limited, negative, so that of these the cheapest is the best.
        """
        if not self.allows(figures):
            assert self.limit is not None
            return -self.limit.of(figures)
        if self.objective is Objective.TOKENS:
            return figures.tokens_per_s
        return 1e12 / figures.usd_per_million if figures.usd_per_million else inf

    def allows(self, figures: Figures) -> bool:
        """Tell whether the costs are within the limit."""
        return self.limit is None or self.limit.of(figures) <= self.limit.usd


FASTEST = Goal()
"""The goal where nothing else is asked for."""
