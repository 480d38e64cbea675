"""Price settings by simulation, and read a map off the prices.

The map has the best setting of each method at each WAN, which method is fastest, and the break-even. Several settings
are simulated at a time, and each price is kept in a folder.
"""

import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from studies.which_training.setting import TOKENS, Method, TriedSetting, Wan
from wanbed.ground.files import write_whole
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.planner.pricing import wan_bytes_per_iteration
from wanbed.runner.resolve.tcp_effects import effects_of
from wanbed.runner.simulator.variant_simulation import simulate_variant

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


def priced(tried: Sequence[TriedSetting], folder: Path, log: Callable[[str], None]) -> list[SettingPrice]:
    """Return the price of every candidate, in order. One that is in ``folder`` is not simulated again.

    Raises InputError or SimulationError for a candidate that does not run: none is left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    left = [candidate for candidate in tried if not _file(candidate.document, folder).is_file()]
    log(f"simulated: {len(tried) - len(left)} of {len(tried)} settings are there")
    if left:
        with ProcessPoolExecutor(
            len(os.sched_getaffinity(0)), mp_context=multiprocessing.get_context("spawn")
        ) as processes:
            waited = [processes.submit(_keep_price, candidate, folder) for candidate in left]
            try:
                for done, each in enumerate(as_completed(waited), 1):
                    each.result()
                    if done % 100 == 0 or done == len(left):
                        log(f"simulated: {done} of {len(left)} settings")
            except BaseException:
                processes.shutdown(cancel_futures=True)
                raise
    return [_read(candidate, folder) for candidate in tried]


def simulated_iteration(document: dict[str, Any]) -> tuple[float, float]:
    """Simulate the only variant of a document: return seconds and WAN bytes of an iteration.

    Both are means from the end of the warm-up to the end of the last iteration.
    """
    point = parse_experiment(document, document["name"], Path()).points()[0]
    variant, training = point.variants[0], point.spec.training
    simulation = simulate_variant(
        point.topology, variant, training.iterations, effects=effects_of(variant.transport), one_part=True
    )
    time_s = simulation.iteration_time_ns(training.warmup) / 1e9
    return time_s, wan_bytes_per_iteration(simulation, training.warmup)


def _keep_price(candidate: TriedSetting, folder: Path) -> None:
    document = candidate.document
    iteration_s, wan_bytes = simulated_iteration(document)
    kept = {"document": document, "iteration_s": iteration_s, "wan_bytes": wan_bytes}
    write_whole(_file(document, folder), json.dumps(kept, indent=1) + "\n")


def _read(candidate: TriedSetting, folder: Path) -> SettingPrice:
    kept = json.loads(_file(candidate.document, folder).read_text(encoding="utf-8"))
    return SettingPrice(candidate.method, candidate.label, candidate.wan, kept["iteration_s"], kept["wan_bytes"])


def _file(document: dict[str, Any], folder: Path) -> Path:
    return folder / f"{sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]}.json"
