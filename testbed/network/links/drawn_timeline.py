"""Draw the changes of a link from a seed: what a section ``generate`` gives.

Only ``Random.random`` of Python is used, which gives the same numbers for a seed on every machine and version.
"""

from collections.abc import Iterator
from math import cos, log, pi
from random import Random
from typing import Any

from wanbed.testbed.network.links.link_spec import (
    DiurnalSpec,
    GenerateSpec,
    LatencyStepsSpec,
    MarkovSpec,
    OutagesSpec,
)
from wanbed.testbed.network.links.wan_link import LinkConditions

_Timeline = list[tuple[int, Any]]
"""A value from each time on, until the next."""


def drawn_timeline(spec: GenerateSpec, base: LinkConditions, key: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the values that are drawn from each time on, until the next; nothing from ``spec.length`` on.

    ``key`` has the seed and the link: another key gives other draws, and each kind of change has draws of its own.
    Factors are on the rates of ``base``; latencies are above its latency.
    """
    factors: list[_Timeline] = []
    if spec.diurnal is not None:
        factors.append(list(_diurnal(spec.diurnal, spec, _random(key, "diurnal"))))
    if spec.markov is not None:
        factors.append(list(_markov(spec.markov, spec, _random(key, "markov"))))
    added = [] if spec.latency_steps is None else list(_steps(spec.latency_steps, spec, _random(key, "latency")))
    ups = [] if spec.outages is None else list(_outages(spec.outages, spec, _random(key, "outages")))
    changes: dict[int, dict[str, Any]] = {}
    for at_ns, factor in _product(factors):
        changes.setdefault(at_ns, {}).update(_rates(base, factor))
    for at_ns, added_ns in added:
        changes.setdefault(at_ns, {})["latency"] = base.latency_ns + added_ns
    for at_ns, up in ups:
        changes.setdefault(at_ns, {})["up"] = up
    timeline: list[tuple[int, dict[str, Any]]] = []
    values: dict[str, Any] = {}
    for at_ns in sorted(changes):
        values = values | changes[at_ns]
        timeline.append((at_ns, values))
    return [*timeline, (spec.length, {})]


def _random(key: str, what: str) -> Random:
    return Random(f"wanbed link over time: {key}, {what}")  # noqa: S311 - nothing is kept secret by it


def _rates(base: LinkConditions, factor: float) -> dict[str, int]:
    rates = {"rate": base.rate_bps, "node_pair_rate": base.node_pair_rate_bps}
    return {name: max(1, round(rate_bps * factor)) for name, rate_bps in rates.items() if rate_bps is not None}


def _product(timelines: list[_Timeline]) -> Iterator[tuple[int, float]]:
    """Yield the product of all values at every time at which one of them changes. All begin at 0."""
    changes: dict[int, dict[int, float]] = {}
    for position, timeline in enumerate(timelines):
        for at_ns, factor in timeline:
            changes.setdefault(at_ns, {})[position] = factor
    now: dict[int, float] = {}
    for at_ns in sorted(changes):
        now |= changes[at_ns]
        product = 1.0
        for factor in now.values():
            product *= factor
        yield at_ns, product


def _diurnal(spec: DiurnalSpec, within: GenerateSpec, random: Random) -> Iterator[tuple[int, float]]:
    phase = random.random()
    for at_ns in range(0, within.length, within.step):
        swing = (1 + cos(2 * pi * (at_ns / spec.period + phase))) / 2
        yield at_ns, spec.low + (1 - spec.low) * swing


def _markov(spec: MarkovSpec, within: GenerateSpec, random: Random) -> Iterator[tuple[int, float]]:
    at_ns, level = 0, 0
    while at_ns < within.length:
        yield at_ns, spec.levels[level]
        at_ns += _time_ns(spec.stay, within.step, random)
        others = [other for other in range(len(spec.levels)) if other != level]
        level = others[int(random.random() * len(others))]


def _steps(spec: LatencyStepsSpec, within: GenerateSpec, random: Random) -> Iterator[tuple[int, int]]:
    at_ns = _time_ns(spec.every, within.step, random)
    while at_ns < within.length:
        yield at_ns, round(random.random() * spec.up_to)
        at_ns += _time_ns(spec.every, within.step, random)


def _outages(spec: OutagesSpec, within: GenerateSpec, random: Random) -> Iterator[tuple[int, bool]]:
    at_ns = 0
    while True:
        at_ns += _time_ns(spec.mtbf, within.step, random)
        if at_ns >= within.length:
            return
        yield at_ns, False
        at_ns += _time_ns(spec.mttr, within.step, random)
        if at_ns >= within.length:
            return
        yield at_ns, True


def _time_ns(mean_ns: int, step_ns: int, random: Random) -> int:
    """Draw an exponentially distributed time, as a multiple of the step and one step at least."""
    return max(1, round(-mean_ns * log(1 - random.random()) / step_ns)) * step_ns
