"""Describe a WAN's bad days: what goes wrong, how badly, and the experiment that shows it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wanbed.ground.yaml_document import read_document
from wanbed.runner.experiment.sweep import value_text
from wanbed.runner.experiments.shipped_experiments import FOLDER

EVENTS = "topology.wan.events"
OURS, NEIGHBOUR = "ours", "neighbour"
BASE = "latency-step"
"""The shipped experiment whose network and training all days without a neighbour have."""

_FIRST_S = 5.0
_ITERATION_S = 1.7
"""About an iteration on a calm day: moments are spread evenly over it, so that no schedule is hit at its best alone."""
_WEATHER_S = 6.0
_NODE_PAIR_BPS = 78_125_000
"""The node-pair rate of ``BASE``."""

Events = Callable[[str, float], tuple[list[dict[str, Any]], float]]
"""Returns the events of a step of a ladder that begins at a time, and for how many seconds the WAN is then bad."""


@dataclass(frozen=True)
class Weather:
    """One moment of one severity: when the WAN is bad, and for how long.

    ``severity`` is the position in the day's ladder. ``length_s`` is None where the WAN is bad throughout.
    ``emulated`` is whether virtual time runs this moment too.
    """

    severity: int
    length_s: float | None
    emulated: bool


@dataclass(frozen=True)
class Ladder:
    """The steps of a kind of bad day, from mild to bad. ``emulated`` is the one that virtual time runs too."""

    name: str
    title: str
    steps: tuple[str, ...]
    emulated: str


@dataclass(frozen=True)
class Day:
    """A kind of bad day, and the experiment that shows it.

    ``values`` are the sweep's values at ``path``, each with its weather, and None for a calm day. ``emulated_repeats``
    is how often virtual time runs each.
    """

    ladder: Ladder
    emulated_repeats: int
    document: Mapping[str, Any]
    path: str
    values: tuple[tuple[Any, Weather | None], ...]

    def experiment(self, engine: str) -> dict[str, Any]:
        """Return the experiment for that engine: simulate, or emulate in virtual time what is chosen for it."""
        simulated = engine == "simulate"
        kept = [value for value, weather in self.values if simulated or weather is None or weather.emulated]
        emulated = {} if simulated else {"clock": "virtual", "repeats": self.emulated_repeats}
        return {**self.document, "name": self.ladder.name, "engine": engine, **emulated, "sweep": {self.path: kept}}

    def weather(self, value: str) -> Weather | None:
        """Return the weather of a swept value, given as text; None if it is calm."""
        return {value_text(each): weather for each, weather in self.values}[value]


def days(moments: int) -> tuple[Day, ...]:
    """Return the four days. What comes and goes begins at each of ``moments`` moments of an iteration in turn."""
    return (
        _weather_day(Ladder("latency", "Latency steps up", ("20ms", "40ms", "80ms"), "40ms"), moments, _latency),
        _weather_day(Ladder("rate", "Rates drift down", ("75%", "50%", "30%", "15%"), "30%"), moments, _rate),
        _weather_day(Ladder("outages", "An outage", ("0.25s", "0.5s", "1s", "2s"), "1s"), moments, _outage),
        _neighbour_day(Ladder("neighbour", "A neighbour on the trunk, by its connections", ("1", "2", "4", "8"), "4")),
    )


def _weather_day(ladder: Ladder, moments: int, events: Events) -> Day:
    values: list[tuple[Any, Weather | None]] = [([], None)]
    for severity, step in enumerate(ladder.steps):
        for moment in range(moments):
            at_s = round(_FIRST_S + _ITERATION_S * moment / moments, 3)
            written, length_s = events(step, at_s)
            values.append((written, Weather(severity, length_s, step == ladder.emulated and moment % 2 == 0)))
    document = dict(read_document(FOLDER / f"{BASE}.yaml"))
    topology = dict(document["topology"])
    topology["wan"] = {key: value for key, value in topology["wan"].items() if key != "events"}
    roomy = {"connections": 16, "window": "67.2KiB", "sharing": "temporal", "pipelines_per_cell": 2}
    (atlas,) = (variant for variant in document["variants"] if variant["name"] == "atlas")
    variants = [*document["variants"], {**atlas, "name": "atlas, 16 connections", "transport": roomy}]
    return Day(ladder, 1, document | {"topology": topology, "variants": variants}, EVENTS, tuple(values))


def _latency(step: str, at_s: float) -> tuple[list[dict[str, Any]], float]:
    return [{"at": f"{at_s}s", "for": f"{_WEATHER_S}s", "latency": step}], _WEATHER_S


def _rate(step: str, at_s: float) -> tuple[list[dict[str, Any]], float]:
    """Return a rate that falls in two steps to ``step`` of the configured one, and comes back in two."""
    low_bps = float(step.rstrip("%")) / 100 * _NODE_PAIR_BPS
    half_bps = (low_bps + _NODE_PAIR_BPS) / 2
    third_s = _WEATHER_S / 3
    return [
        {"at": f"{at_s}s", "for": f"{_WEATHER_S}s", "node_pair_rate": f"{half_bps:.0f}bit"},
        {"at": f"{round(at_s + third_s, 3)}s", "for": f"{third_s}s", "node_pair_rate": f"{low_bps:.0f}bit"},
    ], _WEATHER_S


def _outage(step: str, at_s: float) -> tuple[list[dict[str, Any]], float]:
    return [{"at": f"{at_s}s", "for": step, "down": True}], float(step.rstrip("s"))


def _neighbour_day(ladder: Ladder) -> Day:
    document = dict(read_document(FOLDER / "two-jobs.yaml"))
    ours = ("atlas", "varuna", "1f1b")
    variants = {variant["name"]: variant for variant in document["variants"]}
    for name in ours[1:]:
        variants[name] = {"name": name, "schedule": name, "transport": {"slow_start_after_idle": False}}
    order = [variants[name] for name in (*ours, NEIGHBOUR)]
    jobs = [{**job, "variants": list(ours)} if job["name"] == OURS else job for job in document["jobs"]]
    compute = {**document["compute"], "jitter": {"spread": "5%"}}
    document |= {"variants": order, "jobs": jobs, "repeats": 5, "compute": compute}
    values = tuple(
        (int(step), Weather(severity, None, step == ladder.emulated)) for severity, step in enumerate(ladder.steps)
    )
    return Day(ladder, 3, document, f"variants.{len(ours)}.transport.connections", values)
