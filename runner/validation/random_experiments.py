"""Draw experiments at random, the same on every machine for the same seed, and write their files."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from wanbed.ground.errors import InputError
from wanbed.ground.files import write_whole, written_whole
from wanbed.ground.units import format_duration, format_rate, format_size
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.resolve.experiment import Experiment
from wanbed.testbed.network.tcp_settings import DEFAULT_WINDOW_BYTES

_Value = TypeVar("_Value")


class Dice:
    """A sequence of random choices that depends only on ``seed``, not on the machine or the version of Python.

    All choices use ``random()``, the only method for which Python guarantees the same sequence in every version.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random  # noqa: S311 - nothing is kept secret by it

    def chance(self, probability: float) -> bool:
        """Return True with that probability."""
        return self._random() < probability

    def one(self, values: Sequence[_Value]) -> _Value:
        """Return one of the values, all equally likely."""
        return values[int(self._random() * len(values))]

    def weighted(self, values: Sequence[tuple[_Value, int]]) -> _Value:
        """Return one of the values, with the integer beside it as its weight."""
        return self.one([value for value, times in values for _ in range(times)])

    def whole(self, least: int, most: int) -> int:
        """Return a whole number from ``least`` to ``most``, both included."""
        return least + int(self._random() * (most - least + 1))

    def shuffled(self, values: Sequence[_Value]) -> list[_Value]:
        """Return the values in random order."""
        left, drawn = list(values), []
        while left:
            drawn.append(left.pop(int(self._random() * len(left))))
        return drawn


_LATENCIES_NS = tuple(ms * 1_000_000 for ms in (1, 2, 5, 10, 20, 40, 80))
_RATES_BPS = tuple(mbit * 1_000_000 for mbit in (10, 20, 50, 100, 200, 500, 1000, 2500, 5000, 10_000))

_Trunk = Literal["none", "alone", "roomy", "full"]

_QUICKEST_S, _SLOWEST_S = 0.001, 10.0
"""The shortest and the longest time in seconds of a single transfer over a node pair."""


@dataclass(frozen=True)
class _RandomNetwork:
    """The sections of a topology, and the lowest rate and highest latency of a node pair across the WAN."""

    intra: Mapping[str, str]
    wan: Mapping[str, str]
    links: Sequence[Mapping[str, Any]]
    pair_bps: int
    latency_ns: int


def _draw_network(dice: Dice, datacenters: Sequence[str], crossing_bytes: int) -> _RandomNetwork:
    """Draw links over which a transfer of ``crossing_bytes`` takes from a millisecond to ten seconds."""
    fitting = [rate for rate in _RATES_BPS if _QUICKEST_S <= crossing_bytes * 8 / rate <= _SLOWEST_S]
    rates_bps = fitting or _RATES_BPS[:1]
    trunk: _Trunk = dice.weighted((("none", 2), ("alone", 2), ("roomy", 2), ("full", 3)))
    pair_bps, latency_ns = dice.one(rates_bps), dice.one(_LATENCIES_NS)
    wan = {"latency": format_duration(latency_ns), **_rates(dice, trunk, pair_bps)}
    links: list[Mapping[str, Any]] = []
    if dice.chance(0.6 if len(datacenters) > 2 else 0.1):
        one, other, *_ = dice.shuffled(datacenters)
        own_bps, own_ns = dice.one(rates_bps), dice.one(_LATENCIES_NS)
        links.append({"between": [one, other], "latency": format_duration(own_ns), **_rates(dice, trunk, own_bps)})
        pair_bps, latency_ns = min(pair_bps, own_bps), max(latency_ns, own_ns)
    return _RandomNetwork(_intra(dice, pair_bps), wan, links, pair_bps, latency_ns)


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


MOST_HOSTS, _MOST_STAGES, _MOST_PIPELINES = 12, 6, 4

_MOST_REPLICAS = 6
"""The most replicas of a whole model."""

_NAMES = ("east", "west", "central", "south")

_Datacenters = tuple[tuple[str, int, int], ...]
"""Datacenters, each as its name, its number of hosts and the GPUs of each host."""

_Places = tuple[tuple[str, ...], ...]
"""The datacenter of each stage of each pipeline."""


@dataclass(frozen=True)
class _RandomLayout:
    """Datacenters, and the placement of the stages of each pipeline.

    ``placement`` is one list for all pipelines, one list for each, or None for the default. ``cell`` is the number of
    pipelines of a DP-cell, 1 without sharing.
    """

    datacenters: _Datacenters
    stages: int
    pipelines: int
    placement: _Places | tuple[str, ...] | None
    cell: int = 1

    @property
    def boundaries(self) -> int:
        """The number of stage boundaries of a pipeline."""
        return self.stages - 1

    @property
    def cells_placed_apart(self) -> bool:
        """Tell whether only DP-cells of exactly this size have the replicas of each stage in one datacenter."""
        return self.placement is not None and not isinstance(self.placement[0], str)

    def written(self) -> list[Any] | None:
        """Return the placement as in an experiment file, None for the default."""
        if self.placement is None:
            return None
        return [each if isinstance(each, str) else list(each) for each in self.placement]


def _draw_layout(dice: Dice, schedule: str, *, heavy: bool) -> _RandomLayout:
    """Draw a layout with room for at least two stages. A ``heavy`` one has few stages and few pipelines."""
    count = dice.weighted(((2, 3), (3, 2), (4, 1)))
    datacenters = tuple(
        (name, dice.whole(1, min(4, MOST_HOSTS // count)), dice.weighted(((1, 5), (2, 3), (3, 1), (4, 2))))
        for name in _NAMES[:count]
    )
    rooms = {name: hosts * gpus for name, hosts, gpus in datacenters}
    if schedule == "dp":
        return _replicas(dice, datacenters, rooms, heavy=heavy)
    if sum(rooms.values()) >= 4 and dice.chance(0.45):
        return _apart(dice, schedule, datacenters, rooms, heavy=heavy)
    return _together(dice, schedule, datacenters, rooms, heavy=heavy)


def _replicas(dice: Dice, datacenters: _Datacenters, rooms: Mapping[str, int], *, heavy: bool) -> _RandomLayout:
    """Draw replicas of the whole model, each on one GPU, in any datacenters."""
    pipelines = dice.whole(2, min(3 if heavy else _MOST_REPLICAS, sum(rooms.values())))
    placement: _Places | None = None
    if dice.chance(0.4):
        seats = dice.shuffled([name for name, room in rooms.items() for _ in range(room)])
        placement = tuple((name,) for name in seats[:pipelines])
    return _RandomLayout(datacenters, 1, pipelines, placement)


def _together(
    dice: Dice, schedule: str, datacenters: _Datacenters, rooms: Mapping[str, int], *, heavy: bool
) -> _RandomLayout:
    """Draw a layout with all replicas of a stage in one datacenter: the default placement, or one list."""
    fitting = [
        pipelines
        for pipelines in range(1, (2 if heavy else _MOST_PIPELINES) + 1)
        if sum(room // pipelines for room in rooms.values()) >= 2
    ]
    pipelines = dice.one(fitting)
    room = {name: gpus // pipelines for name, gpus in rooms.items()}
    stages = dice.whole(2, 2 if heavy else min(_MOST_STAGES, sum(room.values())))
    placement = _blocks(dice, room, stages) if dice.chance(0.3) else None
    return _RandomLayout(datacenters, stages, pipelines, placement, _cell(dice, schedule, pipelines))


def _cell(dice: Dice, schedule: str, pipelines: int) -> int:
    """Draw the pipelines of a DP-cell: several more often for atlas, made for sharing, never with virtual stages."""
    often = {"atlas": 0.6, "interleaved-1f1b": 0.0, "zb-v": 0.0}.get(schedule, 0.1)
    if pipelines == 1 or not dice.chance(often):
        return 1
    return dice.one([count for count in range(2, pipelines + 1) if pipelines % count == 0])


def _apart(
    dice: Dice, schedule: str, datacenters: _Datacenters, rooms: Mapping[str, int], *, heavy: bool
) -> _RandomLayout:
    """Draw a layout in which each pipeline, or each DP-cell of two, has its own placement: rings cross the WAN."""
    left = {name: room // 2 for name, room in rooms.items()}
    cell, parts = 2, 2
    if schedule != "atlas" or heavy or sum(left.values()) < 4 or not dice.chance(0.4):
        left, cell = dict(rooms), 1
        parts = 2 if heavy else dice.whole(2, min(_MOST_PIPELINES, sum(left.values()) // 2))
    stages = dice.whole(2, 2 if heavy else min(_MOST_STAGES, sum(left.values()) // parts))
    placement: list[tuple[str, ...]] = []
    for _ in range(parts):
        whole = [name for name, room in left.items() if room >= stages]
        places = (dice.one(whole),) * stages if whole and dice.chance(0.5) else _blocks(dice, left, stages)
        for name in places:
            left[name] -= 1
        placement += [places] * cell
    return _RandomLayout(datacenters, stages, cell * parts, tuple(placement), cell)


def _blocks(dice: Dice, room: Mapping[str, int], stages: int) -> tuple[str, ...]:
    """Draw consecutive stages in each of some datacenters that have room for all stages."""
    places: list[str] = []
    order = dice.shuffled([name for name in room if room[name]])
    while len(places) < stages:
        name = order.pop(0)
        # Leave no more stages than the remaining datacenters have room for.
        left = stages - len(places)
        least = max(1, left - sum(room[later] for later in order))
        places += [name] * dice.whole(least, min(room[name], left))
    return tuple(places)


_KIB, MIB = 2**10, 2**20
MS = 1_000_000

MOST_BYTES = 1024 * MIB
"""The most bytes that all iterations together send over TCP, warm-up included."""

_MOST_TRANSFERS = 1500
"""The most transfers of all iterations together. Each one costs system calls, independent of its size."""

_MOST_SECONDS = 30.0
"""The longest virtual time, because samples are taken in it: estimated as if all transfers ran one after the other."""

VIRTUAL = ("interleaved-1f1b", "zb-v")
"""The schedules whose stages hold two parts of the model each."""

SCHEDULES = ("gpipe", "1f1b", "eager-1f1b", "varuna", "zb-h1", "dp", "atlas", "zb-2p", "atlas", *VIRTUAL)
"""Used in turn, so that a few successive numbers cover all of them. Atlas comes twice, with and without sharing."""

_HEAVY_BYTES = 64 * MIB
"""Experiments with transfers of at least this size get few stages and pipelines."""

_NOTHING_BYTES = 1
"""The size of gradients without an all-reduce: the smallest size that a file may have."""

_WINDOWS_BYTES = (47 * _KIB, 125 * _KIB, 500 * _KIB, 500 * _KIB, 3 * MIB, *(DEFAULT_WINDOW_BYTES,) * 3, 8 * MIB)
_CONNECTIONS: tuple[int | str, ...] = (1, 1, 1, 1, 2, 4, 8, 16, "auto", "auto", "auto")

_SIZES = tuple((4 * _KIB * 4**step, 3 if step < 6 else 1) for step in range(9))
"""Sizes from 4 KiB to 256 MiB with their weights. Large sizes have a low weight because they are slow to run."""

_LEAST_BYTES = 4 * _NOTHING_BYTES
_SPLITS = ("never", "never", "auto")
"""The options of Atlas about its backwards: as published more often."""

_COMPUTE_NS = tuple(ms * MS for ms in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000))
_CARRIED_SHARE = 0.8
_FIRST_FLIGHT_BYTES = 14_480
_MOST_CONNECTIONS = 64


@dataclass(frozen=True)
class _Load:
    """The bytes that an experiment sends: sizes by boundary and by stage, and how often.

    Microbatches come in groups of ``group``.
    """

    activation_bytes: tuple[int, ...]
    gradient_bytes: tuple[int, ...]
    groups: int
    iterations: int
    group: int

    @property
    def microbatches(self) -> int:
        """The microbatches of a pipeline."""
        return self.groups * self.group

    @property
    def largest_bytes(self) -> int:
        """The largest activation or gradient."""
        return max((*self.activation_bytes, *self.gradient_bytes))

    def is_bounded(self, layout: _RandomLayout, transport_bps: float, latency_ns: int) -> bool:
        """Return whether all iterations together are within the limits, if every boundary and ring crosses hosts."""
        crossings = self.iterations * 2 * self.microbatches * layout.pipelines
        passed_on = 1 + 2 * (layout.cell - 1) / layout.cell
        steps = self.iterations * 2 * (layout.pipelines - 1)
        total_bytes = crossings * sum(self.activation_bytes) * passed_on + steps * sum(self.gradient_bytes)
        transfers = crossings * len(self.activation_bytes) * layout.cell + steps * layout.pipelines * layout.stages
        # Slow start doubles the data in flight in every round trip until the largest transfer has left.
        opening_s = (self.largest_bytes // _FIRST_FLIGHT_BYTES).bit_length() * 2 * latency_ns / 1e9
        crossing_s = max(self.activation_bytes, default=0) * 8 / transport_bps + opening_s
        step_s = max(self.gradient_bytes) / layout.pipelines * 8 / transport_bps + opening_s
        return (
            total_bytes <= MOST_BYTES
            and transfers <= _MOST_TRANSFERS
            and crossings * crossing_s + steps * step_s <= _MOST_SECONDS
        )

    def lessened(self) -> "_Load":
        """Return a smaller load: fewer iterations, else fewer microbatches, else a quarter of the largest size."""
        if self.iterations > 2:
            return replace(self, iterations=2)
        if self.groups > 1:
            return replace(self, groups=self.groups // 2)
        most = self.largest_bytes
        if most < _LEAST_BYTES:
            raise ValueError(
                f"{most} bytes, {self.microbatches} microbatches and {self.iterations} iterations are too much"
            )
        return replace(
            self,
            activation_bytes=tuple(size // 4 if size == most else size for size in self.activation_bytes),
            gradient_bytes=tuple(size // 4 if size == most else size for size in self.gradient_bytes),
        )


def draw_experiment(seed: int, number: int) -> dict[str, Any]:
    """Return experiment ``number`` of a ``seed``, counted from 0, as the document of an experiment file."""
    dice = Dice(f"wanbed random experiments, seed {seed}, number {number}")
    schedule = SCHEDULES[(number + seed) % len(SCHEDULES)]
    activation_bytes = _NOTHING_BYTES if schedule == "dp" else dice.weighted(_SIZES)
    gradient_bytes = dice.weighted(_SIZES if schedule == "dp" else ((_NOTHING_BYTES, 4), *_SIZES))
    layout = _draw_layout(dice, schedule, heavy=max(activation_bytes, gradient_bytes) >= _HEAVY_BYTES)
    if layout.pipelines == 1:
        gradient_bytes = _NOTHING_BYTES
    names = [name for name, _, _ in layout.datacenters]
    network = _draw_network(
        dice, names, max(activation_bytes, gradient_bytes) if schedule == "dp" else activation_bytes
    )
    transport, transport_bps = _transport(dice, layout, network)
    parts = 2 if schedule in VIRTUAL else 1
    load = _Load(
        _sizes(dice, activation_bytes, parts * layout.stages - 1),
        _sizes(dice, gradient_bytes, layout.stages),
        dice.one((1, 2, 3, 4, 4, 6, 8, 12)),
        dice.one((2, 3)),
        layout.stages if schedule == "interleaved-1f1b" else 1,
    )
    while not load.is_bounded(layout, transport_bps, network.latency_ns):
        load = load.lessened()
    bounded = schedule not in {"gpipe", "dp", *VIRTUAL} and dice.chance(0.15)
    placement = layout.written()
    compute = _compute(dice, load, layout, network)
    options = {"options": {"split": dice.one(_SPLITS)}} if schedule == "atlas" else {}
    variant = {"name": schedule, "schedule": schedule, **options, "transport": transport}
    return {
        "name": f"random-{seed}-{number:03d}",
        "topology": {
            "datacenters": [
                {"name": name, "hosts": hosts, "gpus_per_host": gpus} for name, hosts, gpus in layout.datacenters
            ],
            "intra": dict(network.intra),
            "wan": dict(network.wan),
            **({"links": [dict(link) for link in network.links]} if network.links else {}),
        },
        "compute": compute,
        "training": {
            "stages": layout.stages,
            "pipelines": layout.pipelines,
            "microbatches": load.microbatches,
            "iterations": load.iterations,
            "warmup": 1,
            **({"memory_bound": layout.stages} if bounded else {}),
            **({"virtual_stages": parts} if parts > 1 else {}),
        },
        "variants": [variant if placement is None else {**variant, "placement": placement}],
        "clock": "virtual",
    }


def _transport(dice: Dice, layout: _RandomLayout, network: _RandomNetwork) -> tuple[dict[str, Any], float]:
    """Return the section ``transport``, and the approximate rate of a node pair with it."""
    connections = dice.one(_CONNECTIONS)
    window_bytes = dice.one(_WINDOWS_BYTES)
    transport: dict[str, Any] = {"connections": connections, "window": format_size(window_bytes)}
    if dice.chance(0.3):
        transport["slow_start_after_idle"] = False
    if layout.cell > 1:
        transport["sharing"] = "temporal"
        if layout.cells_placed_apart or dice.chance(0.7):
            transport["pipelines_per_cell"] = layout.cell
    count = connections if isinstance(connections, int) else _MOST_CONNECTIONS
    windows_bps = count * window_bytes * _CARRIED_SHARE * 8e9 / (2 * network.latency_ns)
    return transport, min(network.pair_bps, windows_bps)


def _sizes(dice: Dice, size_bytes: int, count: int) -> tuple[int, ...]:
    """Return the same size for all, or sometimes a smaller one for some."""
    if count < 2 or size_bytes == _NOTHING_BYTES or dice.chance(0.75):
        return (size_bytes,) * count
    return tuple(size_bytes // dice.one((1, 1, 3)) for _ in range(count))


def _compute(dice: Dice, load: _Load, layout: _RandomLayout, network: _RandomNetwork) -> dict[str, Any]:
    """Return the section ``compute``, with forwards of a tenth to all of a transfer's time."""
    largest_bytes = max(load.activation_bytes) if layout.boundaries else load.largest_bytes
    transfer_ns = largest_bytes * 8 * 10**9 // network.pair_bps + network.latency_ns
    forward_ns = dice.one([each for each in _COMPUTE_NS if transfer_ns // 10 <= each <= transfer_ns] or _COMPUTE_NS[:1])
    forwards_ns = [forward_ns] * layout.stages
    if dice.chance(0.25):
        forwards_ns = [forward_ns * dice.one((2, 3, 4)) // 2 for _ in range(layout.stages)]
    compute = {
        "forward": _one_or_list([format_duration(each) for each in forwards_ns]),
        "backward": _one_or_list([format_duration(2 * each) for each in forwards_ns]),
    }
    if dice.chance(0.35):
        compute["recompute"] = compute["forward"]
    if dice.chance(0.2):
        compute["optimizer"] = format_duration(forward_ns)
    if layout.boundaries:
        compute["activation"] = _one_or_list([format_size(each) for each in load.activation_bytes])
    compute["gradient"] = _one_or_list([format_size(each) for each in load.gradient_bytes])
    return compute


def _one_or_list(values: Sequence[str]) -> Any:
    return values[0] if len(set(values)) == 1 else list(values)


MOST_EXPERIMENTS = 1000
"""The most experiments of a run, because their numbers have three digits."""


@dataclass(frozen=True)
class DrawnExperiment:
    """One experiment of a seed, its number, and its file."""

    number: int
    file: Path
    experiment: Experiment

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.experiment.name

    @property
    def runs(self) -> Path:
        """The folder of its runs, beside the file. A separate folder makes it fast to find its latest run."""
        return self.file.with_suffix("")


def write_experiments(seed: int, count: int, folder: Path) -> list[DrawnExperiment]:
    """Draw the first ``count`` experiments of a seed into files in ``folder``, replacing files of the same name.

    Raise InputError if they cannot be written.
    """
    drawn = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            document = draw_experiment(seed, number)
            file = folder / f"{document['name']}.yaml"
            write_whole(file, _text(document))
            drawn.append(DrawnExperiment(number, file, load_experiment(file)))
    except OSError as fault:
        raise InputError(f"{folder}: cannot be written to ({fault.strerror}), give another folder") from None
    return drawn


def copy_experiments(drawn: Sequence[DrawnExperiment], names: Sequence[str], folder: Path) -> None:
    """Copy the files of the named experiments into ``folder``, and delete those of all other drawn experiments."""
    if not names and not folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {each.file.name: each.file for each in drawn if each.name in names}
    for old in folder.glob("random-*.yaml"):
        if old.name not in wanted:
            old.unlink()
    for name, file in wanted.items():
        with written_whole(folder / name) as partial:
            partial.write_bytes(file.read_bytes())


def _text(document: dict[str, object]) -> str:
    comment = "# Drawn by wanbed validate --random. Hold one engine against the other by:\n"
    file = f"{document['name']}.yaml"
    comment += f"#   wanbed run {file} && wanbed simulate {file}\n"
    return comment + yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120)
