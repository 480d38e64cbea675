"""Draw random experiments over everything that a user can combine, to compare the simulator with virtual time.

A drawn experiment has one variant. Its bytes, hosts and duration are limited, so that a run in virtual time takes a few
seconds. The same seed and number give the same experiment on every machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wanbed.ground.units import format_duration, format_size
from wanbed.runner.validation.random.dice import Dice
from wanbed.runner.validation.random.random_layout import RandomLayout, draw_layout
from wanbed.runner.validation.random.random_network import RandomNetwork, draw_network
from wanbed.testbed.network.tcp_settings import DEFAULT_WINDOW_BYTES

KIB, MIB = 2**10, 2**20
MS = 1_000_000

MOST_BYTES = 1024 * MIB
"""The most bytes that all iterations together send over TCP, warm-up included."""
MOST_TRANSFERS = 1500
"""The most transfers of all iterations together. Each one costs system calls, independent of its size."""
MOST_SECONDS = 30.0
"""The longest virtual time, because samples are taken in it: estimated as if all transfers ran one after the other."""

VIRTUAL = ("interleaved-1f1b", "zb-v")
"""The schedules whose stages hold two parts of the model each."""
SCHEDULES = ("gpipe", "1f1b", "eager-1f1b", "varuna", "zb-h1", "dp", "atlas", "zb-2p", "atlas", *VIRTUAL)
"""Used in turn, so that a few successive numbers cover all of them. Atlas comes twice, with and without sharing."""
HEAVY_BYTES = 64 * MIB
"""Experiments with transfers of at least this size get few stages and pipelines."""
NOTHING_BYTES = 1
"""The size of gradients without an all-reduce: the smallest size that a file may have."""
WINDOWS_BYTES = (47 * KIB, 125 * KIB, 500 * KIB, 500 * KIB, 3 * MIB, *(DEFAULT_WINDOW_BYTES,) * 3, 8 * MIB)

CONNECTIONS: tuple[int | str, ...] = (1, 1, 1, 1, 2, 4, 8, 16, "auto", "auto", "auto")

_SIZES = tuple((4 * KIB * 4**step, 3 if step < 6 else 1) for step in range(9))
"""Sizes from 4 KiB to 256 MiB with their weights. Large sizes have a low weight because they are slow to run."""
_LEAST_BYTES = 4 * NOTHING_BYTES
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

    def is_bounded(self, layout: RandomLayout, transport_bps: float, latency_ns: int) -> bool:
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
            and transfers <= MOST_TRANSFERS
            and crossings * crossing_s + steps * step_s <= MOST_SECONDS
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
    activation_bytes = NOTHING_BYTES if schedule == "dp" else dice.weighted(_SIZES)
    gradient_bytes = dice.weighted(_SIZES if schedule == "dp" else ((NOTHING_BYTES, 4), *_SIZES))
    layout = draw_layout(dice, schedule, heavy=max(activation_bytes, gradient_bytes) >= HEAVY_BYTES)
    if layout.pipelines == 1:
        gradient_bytes = NOTHING_BYTES
    names = [name for name, _, _ in layout.datacenters]
    network = draw_network(dice, names, max(activation_bytes, gradient_bytes) if schedule == "dp" else activation_bytes)
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
    variant = {"name": schedule, "schedule": schedule, "transport": transport}
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
        "compute": _compute(dice, load, layout, network),
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


def _transport(dice: Dice, layout: RandomLayout, network: RandomNetwork) -> tuple[dict[str, Any], float]:
    """Return the section ``transport``, and the approximate rate of a node pair with it."""
    connections = dice.one(CONNECTIONS)
    window_bytes = dice.one(WINDOWS_BYTES)
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
    if count < 2 or size_bytes == NOTHING_BYTES or dice.chance(0.75):
        return (size_bytes,) * count
    return tuple(size_bytes // dice.one((1, 1, 3)) for _ in range(count))


def _compute(dice: Dice, load: _Load, layout: RandomLayout, network: RandomNetwork) -> dict[str, Any]:
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
