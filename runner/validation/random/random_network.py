"""Draw the network of an experiment: latencies, node-pair rates, and trunks that are full or have room."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wanbed.ground.units import format_duration, format_rate
from wanbed.runner.validation.random.dice import Dice

LATENCIES_NS = tuple(ms * 1_000_000 for ms in (1, 2, 5, 10, 20, 40, 80))
RATES_BPS = tuple(mbit * 1_000_000 for mbit in (10, 20, 50, 100, 200, 500, 1000, 2500, 5000, 10_000))

_Trunk = Literal["none", "alone", "roomy", "full"]
_QUICKEST_S, _SLOWEST_S = 0.001, 10.0
"""The shortest and the longest time in seconds of a single transfer over a node pair."""


@dataclass(frozen=True)
class RandomNetwork:
    """The sections of a topology, and the lowest rate and highest latency of a node pair across the WAN."""

    intra: Mapping[str, str]
    wan: Mapping[str, str]
    links: Sequence[Mapping[str, Any]]
    pair_bps: int
    latency_ns: int


def draw_network(dice: Dice, datacenters: Sequence[str], crossing_bytes: int) -> RandomNetwork:
    """Draw links over which a transfer of ``crossing_bytes`` takes from a millisecond to ten seconds."""
    rates_bps = [rate for rate in RATES_BPS if _QUICKEST_S <= crossing_bytes * 8 / rate <= _SLOWEST_S] or RATES_BPS[:1]
    trunk: _Trunk = dice.weighted((("none", 2), ("alone", 2), ("roomy", 2), ("full", 3)))
    pair_bps, latency_ns = dice.one(rates_bps), dice.one(LATENCIES_NS)
    wan = {"latency": format_duration(latency_ns), **_rates(dice, trunk, pair_bps)}
    links: list[Mapping[str, Any]] = []
    if dice.chance(0.6 if len(datacenters) > 2 else 0.1):
        one, other, *_ = dice.shuffled(datacenters)
        own_bps, own_ns = dice.one(rates_bps), dice.one(LATENCIES_NS)
        links.append({"between": [one, other], "latency": format_duration(own_ns), **_rates(dice, trunk, own_bps)})
        pair_bps, latency_ns = min(pair_bps, own_bps), max(latency_ns, own_ns)
    return RandomNetwork(_intra(dice, pair_bps), wan, links, pair_bps, latency_ns)


def _rates(dice: Dice, trunk: _Trunk, pair_bps: int) -> dict[str, str]:
    """Return the rate of a node pair and of the trunk that all of them share, as configured."""
    if trunk == "none":
        return {"node_pair_rate": format_rate(pair_bps)}
    if trunk == "alone":
        return {"rate": format_rate(pair_bps)}
    tenths = 200 if trunk == "roomy" else dice.one((10, 12, 15, 20))
    return {"rate": format_rate(pair_bps * tenths // 10), "node_pair_rate": format_rate(pair_bps)}


def _intra(dice: Dice, pair_bps: int) -> dict[str, str]:
    """Draw ports as slow as a node pair of the WAN, faster ones, or unlimited ones."""
    times = dice.weighted(((None, 2), (1, 1), (2, 2), (20, 3)))
    rate = format_rate(None if times is None else times * pair_bps)
    return {"latency": dice.one(("20us", "50us", "100us", "500us")), "rate": rate}
