"""Read a map off the prices: the best setting of each method at each WAN, which is fastest, and the break-even."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from studies.which_training.setting import TOKENS, Method, Wan

AS_FAST = 1.01
"""Methods whose iterations are within this factor of the shortest count as equally fast."""


@dataclass(frozen=True)
class SettingPrice:
    """The cost of one candidate: seconds of an iteration and bytes over the WAN in it, means over the measured ones."""

    method: Method
    label: str
    wan: Wan
    iteration_s: float
    wan_bytes: float

    def __post_init__(self) -> None:
        if self.iteration_s <= 0:
            raise ValueError(f"{self}: an iteration takes time")

    @property
    def tokens_per_s(self) -> float:
        """Tokens of an iteration over its seconds."""
        return TOKENS / self.iteration_s


@dataclass(frozen=True)
class Grid:
    """The best price of each method at each WAN: that with the shortest iteration of all that was tried."""

    best: Mapping[tuple[Wan, Method], SettingPrice]

    @classmethod
    def of(cls, prices: Iterable[SettingPrice]) -> "Grid":
        """Keep of each method at each WAN the fastest; of two that are equally fast the one tried first."""
        best: dict[tuple[Wan, Method], SettingPrice] = {}
        for price in prices:
            at = (price.wan, price.method)
            if at not in best or price.iteration_s < best[at].iteration_s:
                best[at] = price
        return cls(best)

    @property
    def wans(self) -> tuple[Wan, ...]:
        """The WANs, by latency and rate."""
        return tuple(sorted({wan for wan, _ in self.best}))

    def price(self, wan: Wan, method: Method) -> SettingPrice:
        """Return the best price of a method at a WAN. Raise KeyError if it has none."""
        return self.best[wan, method]

    def fastest(self, wan: Wan, among: Callable[[Method], bool] = lambda _: True) -> SettingPrice:
        """Return the price with the most tokens a second at a WAN, of the methods that ``among`` takes."""
        return min(
            (price for (where, method), price in self.best.items() if where == wan and among(method)),
            key=lambda price: price.iteration_s,
        )

    def as_fast(self, wan: Wan, among: Callable[[Method], bool] = lambda _: True) -> tuple[SettingPrice, ...]:
        """Return the fastest at a WAN and all that are within 1 % of it, in the order of ``Method``."""
        limit_s = self.fastest(wan, among).iteration_s * AS_FAST
        own = (self.best.get((wan, method)) for method in Method if among(method))
        return tuple(price for price in own if price is not None and price.iteration_s <= limit_s)

    def break_even(self, wan: Wan, among: Callable[[Method], bool]) -> float:
        """Return how many times as many tokens the fastest local-update method may need for a loss.

        With just as many it takes as long as the fastest synchronous method of those that ``among`` takes.
        """
        local = self.fastest(wan, lambda method: not method.synchronous)
        synchronous = self.fastest(wan, lambda method: method.synchronous and among(method))
        return local.tokens_per_s / synchronous.tokens_per_s


def over_wan(method: Method) -> bool:
    """Return whether a method trains over the WAN at all."""
    return method is not Method.ONE
