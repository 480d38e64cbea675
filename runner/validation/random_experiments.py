"""Experiments drawn at random, over all that a user may combine: where the simulator is held against virtual time.

A drawn experiment has one variant. It is as large as its kind needs and no larger: what it sends, the hosts that it has
and how long it lasts are bounded, so that a run in virtual time costs a few seconds. The same seed and number give the
same experiment on every machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from runner.validation.dice import Dice
from testbed.units import format_duration, format_rate, format_size

KIB, MIB, GIB = 2**10, 2**20, 2**30
US, MS = 1_000, 1_000_000
MBIT = 1_000_000

MOST_BYTES = GIB
"""That all iterations together send."""
MOST_TRANSFERS = 1500
"""Of all iterations together; every one costs system calls, however small it is."""
MOST_SECONDS = 60.0
"""Of virtual time, which is sampled: roughly, as if each boundary's transfers followed each other."""
MOST_HOSTS, MOST_STAGES, MOST_PIPELINES = 12, 6, 4

NAMES = ("east", "west", "central", "south")
SCHEDULES = ("gpipe", "1f1b", "eager-1f1b", "varuna", "zb-h1", "dp", "atlas", "atlas")
"""In turn, so that a few successive numbers have all of them; Atlas twice, since it may share links or not."""
HEAVY_BYTES = 64 * MIB
"""Transfers as large as this go over few boundaries, a few times."""
NOTHING_BYTES = 1
"""What stands for gradients that nobody sums: the least that a file may say."""

_SIZES = tuple((4 * KIB * 4**step, 3 if step < 6 else 1) for step in range(9))
"""4 KiB to 256 MiB; the large ones are dear."""
_LATENCIES = tuple(ms * MS for ms in (1, 2, 5, 10, 20, 40, 80))
_RATES = tuple(mbit * MBIT for mbit in (10, 20, 50, 100, 200, 500, 1000, 2500, 5000, 10_000))
_COMPUTE = tuple(ms * MS for ms in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000))
_WINDOWS = ((96 * KIB, 1), (256 * KIB, 1), (MIB, 2), (6 * MIB, 4), (16 * MIB, 1))
"""6 MiB is what a stock Debian has."""
_WINDOW_SHARE = 0.49
_SEGMENTS = 14480
"""What a connection sends in its first round trip."""

Places = tuple[tuple[str, ...], ...]
Trunk = Literal["none", "alone", "roomy", "full"]


@dataclass(frozen=True)
class _Layout:
    """Datacenters as (name, hosts, GPUs a host), and who computes where: None leaves that to the default."""

    datacenters: tuple[tuple[str, int, int], ...]
    stages: int
    pipelines: int
    placement: Places | tuple[str, ...] | None
    cell: int

    @property
    def boundaries(self) -> int:
        return self.stages - 1


@dataclass(frozen=True)
class _Load:
    """What an iteration sends: sizes by boundary and by stage."""

    activation_bytes: tuple[int, ...]
    gradient_bytes: tuple[int, ...]
    microbatches: int
    iterations: int

    def total_bytes(self, layout: _Layout) -> int:
        """Of all iterations, over TCP, were every boundary and ring to leave its hosts."""
        passed_on = 1 + 2 * (layout.cell - 1) / layout.cell
        own = 2 * self.microbatches * layout.pipelines * sum(self.activation_bytes) * passed_on
        return round(self.iterations * (own + 2 * (layout.pipelines - 1) * sum(self.gradient_bytes)))

    def transfers(self, layout: _Layout) -> int:
        """Messages between stages, and steps of rings."""
        own = 2 * self.microbatches * layout.pipelines * layout.boundaries * layout.cell
        return self.iterations * (own + 2 * layout.pipelines * (layout.pipelines - 1) * layout.stages)

    @property
    def largest_bytes(self) -> int:
        """The largest single thing that is sent."""
        return max((*self.activation_bytes, *self.gradient_bytes))


def draw_experiment(seed: int, number: int) -> dict[str, Any]:
    """The document of experiment ``number``, counted from 0, of those that ``seed`` gives; as a user would write it."""
    dice = Dice(f"wanbed random experiments, seed {seed}, number {number}")
    schedule = SCHEDULES[(number + seed) % len(SCHEDULES)]
    activation_bytes, gradient_bytes = dice.weighted(_SIZES), dice.weighted(((NOTHING_BYTES, 4), *_SIZES))
    if schedule == "dp":
        gradient_bytes = dice.weighted(_SIZES)
    crossing_bytes = gradient_bytes if schedule == "dp" else activation_bytes
    layout = _layout(dice, schedule, heavy=max(crossing_bytes, gradient_bytes) >= HEAVY_BYTES)
    if layout.pipelines == 1:
        gradient_bytes = NOTHING_BYTES
    wan, links, slowest_bps, slowest_ns = _wan(dice, layout, crossing_bytes)
    intra = _intra(dice, slowest_bps)
    transport, carried_bps = _transport(dice, schedule, layout, slowest_bps, slowest_ns)
    load = _Load(
        _unequal_sizes(dice, activation_bytes, layout.boundaries),
        _unequal_sizes(dice, gradient_bytes, layout.stages),
        dice.one((1, 2, 3, 4, 4, 6, 8, 12)),
        dice.one((2, 3)),
    )
    load = _bounded(load, layout, carried_bps, slowest_ns)
    compute = _compute(dice, schedule, load, layout, slowest_bps, slowest_ns)
    return {
        "name": f"random-{seed}-{number:03d}",
        "topology": {
            "datacenters": [{"name": name, "hosts": hosts, "gpus_per_host": gpus}
                            for name, hosts, gpus in layout.datacenters],
            "intra": intra,
            "wan": wan,
            **({"links": links} if links else {}),
        },
        "compute": compute,
        "training": {
            "stages": layout.stages,
            "pipelines": layout.pipelines,
            "microbatches": load.microbatches,
            "iterations": load.iterations,
            "warmup": 1,
            **({"memory_bound": layout.stages} if schedule not in {"gpipe", "dp"} and dice.chance(0.15) else {}),
        },
        "variants": [
            {
                "name": schedule,
                "schedule": schedule,
                "transport": transport,
                **({} if layout.placement is None else {"placement": _written(layout.placement)}),
            }
        ],
        "clock": "virtual",
    }


def _layout(dice: Dice, schedule: str, *, heavy: bool) -> _Layout:
    """Datacenters with GPUs enough for two stages at least, and what is placed there."""
    count = dice.weighted(((2, 3), (3, 2), (4, 1)))
    datacenters = tuple(
        (name, dice.whole(1, 4 if count < 4 else 3), dice.weighted(((1, 5), (2, 3), (3, 1), (4, 2))))
        for name in NAMES[:count]
    )
    rooms = {name: hosts * gpus for name, hosts, gpus in datacenters}
    if schedule == "dp":
        return _replicas(dice, datacenters, rooms, heavy=heavy)
    if sum(rooms.values()) >= 4 and dice.chance(0.45):
        return _apart(dice, schedule, datacenters, rooms, heavy=heavy)
    # All replicas of a stage in one datacenter.
    most = [pipelines for pipelines in range(1, MOST_PIPELINES + 1)
            if sum(room // pipelines for room in rooms.values()) >= 2 and not (heavy and pipelines > 2)]
    pipelines = dice.one(most)
    room = {name: gpus // pipelines for name, gpus in rooms.items()}
    stages = dice.whole(2, 2 if heavy else min(MOST_STAGES, sum(room.values())))
    placement: tuple[str, ...] | None = None
    if dice.chance(0.3):
        placement = _blocks(dice, room, stages)
    return _Layout(datacenters, stages, pipelines, placement, _cell(dice, schedule, pipelines))


def _replicas(
    dice: Dice, datacenters: tuple[tuple[str, int, int], ...], rooms: Mapping[str, int], *, heavy: bool
) -> _Layout:
    """Whole models, each on a GPU, whose sums of gradients go wherever they lie."""
    pipelines = dice.whole(2, min(3 if heavy else 6, sum(rooms.values())))
    placement: Places | None = None
    if dice.chance(0.4):
        seats = dice.shuffled([name for name, room in rooms.items() for _ in range(room)])
        placement = tuple((name,) for name in seats[:pipelines])
    return _Layout(datacenters, 1, pipelines, placement, 1)


def _apart(
    dice: Dice,
    schedule: str,
    datacenters: tuple[tuple[str, int, int], ...],
    rooms: Mapping[str, int],
    *,
    heavy: bool,
) -> _Layout:
    """Each pipeline placed by itself, so that rings cross the WAN; with cells, each cell by itself."""
    total = sum(rooms.values())
    cell = 2 if total >= 8 and schedule == "atlas" and not heavy and dice.chance(0.4) else 1
    pipelines = cell * dice.whole(2, 2 if heavy or cell > 1 else min(MOST_PIPELINES, total // 2))
    left = {name: room // cell for name, room in rooms.items()}
    parts = pipelines // cell
    fits = max(1, min(MOST_STAGES, sum(left.values()) // parts))
    stages = min(2 if heavy else dice.whole(2, max(2, fits)), fits)
    placement: list[tuple[str, ...]] = []
    for _ in range(parts):
        whole = [name for name, room in left.items() if room >= stages]
        places = (dice.one(whole),) * stages if whole and dice.chance(0.5) else _blocks(dice, left, stages)
        for name in places:
            left[name] -= 1
        placement += [places] * cell
    return _Layout(datacenters, stages, pipelines, tuple(placement), cell)


def _blocks(dice: Dice, room: Mapping[str, int], stages: int) -> tuple[str, ...]:
    """Consecutive stages in each of some datacenters, as many as there is room for."""
    places: list[str] = []
    order = dice.shuffled(list(room))
    while len(places) < stages:
        name = order.pop(0)
        free = min(room[name], stages - len(places))
        # The last ones have to take what is left.
        needed = stages - len(places) - sum(room[later] for later in order)
        least = max(1, needed)
        places += [name] * (dice.whole(least, free) if free >= least else 0)
    return tuple(places)


def _cell(dice: Dice, schedule: str, pipelines: int) -> int:
    """How many pipelines share links."""
    if pipelines == 1 or not dice.chance(0.6 if schedule == "atlas" else 0.1):
        return 1
    return dice.one([count for count in range(2, pipelines + 1) if pipelines % count == 0])


def _wan(
    dice: Dice, layout: _Layout, crossing_bytes: int
) -> tuple[dict[str, str], list[dict[str, Any]], int, int]:
    """The section ``wan``, links that differ, the lowest rate of a pair of hosts, and the longest latency."""
    fit = [rate for rate in _RATES if 0.001 <= crossing_bytes * 8 / rate <= 10] or [_RATES[0]]
    pair_bps, latency_ns = dice.one(fit), dice.one(_LATENCIES)
    kind: Trunk = dice.weighted((("none", 2), ("alone", 2), ("roomy", 2), ("full", 3)))
    wan = {"latency": format_duration(latency_ns), **_rates(dice, kind, pair_bps)}
    links, slowest_bps, longest_ns = [], pair_bps, latency_ns
    if len(layout.datacenters) > 2 and dice.chance(0.6) or dice.chance(0.1):
        one, other = dice.shuffled([name for name, _, _ in layout.datacenters])[:2]
        own_bps, own_ns = dice.one(fit), dice.one(_LATENCIES)
        links = [{"between": [one, other], "latency": format_duration(own_ns), **_rates(dice, kind, own_bps)}]
        slowest_bps, longest_ns = min(pair_bps, own_bps), max(latency_ns, own_ns)
    return wan, links, slowest_bps, longest_ns


def _rates(dice: Dice, kind: Trunk, pair_bps: int) -> dict[str, str]:
    if kind == "none":
        return {"node_pair_rate": format_rate(pair_bps)}
    if kind == "alone":
        return {"rate": format_rate(pair_bps)}
    trunk_bps = 20 * pair_bps if kind == "roomy" else pair_bps * dice.one((10, 12, 15, 20)) // 10
    return {"rate": format_rate(trunk_bps), "node_pair_rate": format_rate(pair_bps)}


def _intra(dice: Dice, pair_bps: int) -> dict[str, str]:
    rate = dice.weighted(
        (("unlimited", 2), (format_rate(pair_bps), 1), (format_rate(2 * pair_bps), 2), (format_rate(20 * pair_bps), 3))
    )
    return {"latency": dice.one(("20us", "50us", "100us", "500us")), "rate": rate}


def _transport(
    dice: Dice, schedule: str, layout: _Layout, pair_bps: int, latency_ns: int
) -> tuple[dict[str, Any], float]:
    """The section ``transport``, and roughly what a pair of hosts then moves at the least."""
    connections = dice.weighted(((1, 4), (2, 1), (4, 1), (8, 1), (16, 1), ("auto", 3)))
    window_bytes = dice.weighted(_WINDOWS)
    transport: dict[str, Any] = {"connections": connections, "window": format_size(window_bytes)}
    if dice.chance(0.3):
        transport["slow_start_after_idle"] = False
    if layout.cell > 1:
        transport["sharing"] = "temporal"
        if layout.placement is not None and not isinstance(layout.placement[0], str) or dice.chance(0.7):
            transport["pipelines_per_cell"] = layout.cell
    count = 64 if connections == "auto" else connections
    return transport, min(pair_bps, count * window_bytes * _WINDOW_SHARE * 8e9 / (2 * latency_ns))


def _unequal_sizes(dice: Dice, size_bytes: int, count: int) -> tuple[int, ...]:
    """One size for all, or now and then another one for some."""
    if count < 2 or size_bytes == NOTHING_BYTES or dice.chance(0.75):
        return (size_bytes,) * count
    return tuple(size_bytes // dice.one((1, 1, 3)) for _ in range(count))


def _bounded(load: _Load, layout: _Layout, carried_bps: float, latency_ns: int) -> _Load:
    """The same, with fewer iterations, microbatches and bytes until it is within the bounds."""

    def seconds(each: _Load) -> float:
        round_trip_s = 2 * latency_ns / 1e9
        # Slow start doubles until the largest transfer is out.
        opening = max(0, (each.largest_bytes // _SEGMENTS).bit_length()) * round_trip_s
        largest = max(each.activation_bytes, default=0)
        own = 2 * each.microbatches * layout.pipelines * (largest * 8 / carried_bps + opening)
        ring = 2 * layout.pipelines * (max(each.gradient_bytes) * 8 / carried_bps + opening)
        return each.iterations * (own + (ring if layout.pipelines > 1 else 0))

    while True:
        if (
            load.total_bytes(layout) <= MOST_BYTES
            and load.transfers(layout) <= MOST_TRANSFERS
            and seconds(load) <= MOST_SECONDS
        ):
            return load
        if load.iterations > 2:
            load = replace(load, iterations=2)
        elif load.microbatches > 1:
            load = replace(load, microbatches=load.microbatches // 2)
        else:
            largest = load.largest_bytes
            load = replace(
                load,
                activation_bytes=tuple(size // 4 if size == largest else size for size in load.activation_bytes),
                gradient_bytes=tuple(size // 4 if size == largest else size for size in load.gradient_bytes),
            )


def _compute(
    dice: Dice, schedule: str, load: _Load, layout: _Layout, pair_bps: int, latency_ns: int
) -> dict[str, Any]:
    """Times beside those of the transfers: much shorter to about as long."""
    largest = max(load.activation_bytes, default=0) if schedule != "dp" else max(load.gradient_bytes)
    transfer_ns = largest * 8e9 / pair_bps + latency_ns
    near = [each for each in _COMPUTE if transfer_ns / 10 <= each <= transfer_ns] or [_COMPUTE[0]]
    forward_ns = dice.one(near)
    forwards = [forward_ns] * layout.stages
    if dice.chance(0.25):
        forwards = [forward_ns * dice.one((2, 3, 4)) // 2 for _ in range(layout.stages)]
    backwards = [each * 2 for each in forwards]
    compute: dict[str, Any] = {
        "forward": _one_or_list([format_duration(each) for each in forwards]),
        "backward": _one_or_list([format_duration(each) for each in backwards]),
    }
    if dice.chance(0.35):
        compute["recompute"] = compute["forward"]
    if dice.chance(0.2):
        compute["optimizer"] = format_duration(forward_ns)
    compute["activation"] = _one_or_list([format_size(each) for each in load.activation_bytes] or ["1B"])
    compute["gradient"] = _one_or_list([format_size(each) for each in load.gradient_bytes])
    return compute


def _one_or_list(values: Sequence[str]) -> Any:
    return values[0] if len(set(values)) == 1 else list(values)


def _written(placement: Places | tuple[str, ...]) -> list[Any]:
    return [each if isinstance(each, str) else list(each) for each in placement]
