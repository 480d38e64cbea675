"""Small DP-cells as experiments: every schedule over one network, for a comparison with the optimum."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.runner.small_experiment import sweep_point
from tests.support.workloads.optimal_cell import Interval, OptimalCell
from wanbed.runner.bound.lower_bound import lower_bounds
from wanbed.runner.resolve.cell_costs import cell_costs
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.pipeline_variant import in_pipelines
from wanbed.runner.resolve.tcp_effects import IDEAL
from wanbed.runner.simulator.variant_simulation import simulate_variant

WHOLE = ("gpipe", "1f1b", "eager-1f1b", "varuna", "atlas")
SPLIT = ("zb-h1", "zb-2p")
"""Schedules that run backwards whole, and those that split them: each kind has an optimum of its own."""
_ITERATIONS, _WARMUP = 6, 3
_PIPELINES = 2


@dataclass(frozen=True)
class SmallCell:
    """``held`` is the memory bound, None for none. A ``shared`` cell has two pipelines that take turns."""

    stages: int
    microbatches: int
    held: int | None
    shared: bool
    uneven: bool
    seed: int

    def point(self) -> SweepPoint:
        """Return the experiment: one variant a schedule, over links by rate and latency alone."""
        dice = random.Random(repr(self))
        forwards_ms = [dice.randint(2, 12) * 10 if self.uneven else 60 for _ in range(self.stages)]
        pipelines = _PIPELINES if self.shared else 1
        transport: dict[str, Any] = {"model": "ideal", **({"sharing": "temporal"} if self.shared else {})}
        whole = [name for name in WHOLE if name != "gpipe" or (self.held or self.microbatches) >= self.microbatches]
        document = {
            "topology": {
                "datacenters": [{"name": f"dc{stage}", "hosts": pipelines} for stage in range(self.stages)],
                "intra": {"latency": "0s", "rate": "unlimited"},
                "wan": {"latency": f"{dice.choice((0, 20, 60, 150))}ms", "node_pair_rate": "80Mbit"},
            },
            "compute": {
                "forward": [f"{each}ms" for each in forwards_ms],
                "backward": [f"{2 * each}ms" for each in forwards_ms],
                # 10, 20 or 40 ms over one node pair.
                "activation": f"{dice.choice((100, 200, 400))}kB",
                "gradient": "1B",
            },
            "training": {
                "stages": self.stages,
                "pipelines": pipelines,
                "microbatches": self.microbatches,
                "iterations": _ITERATIONS,
                "warmup": _WARMUP,
                **({} if self.held is None else {"memory_bound": self.held}),
            },
            "variants": [
                {
                    "name": name,
                    "schedule": name,
                    "options": {"split": "never"} if name == "atlas" else {},
                    "transport": transport,
                }
                for name in (*whole, *SPLIT)
            ],
            "engine": "simulate",
        }
        return sweep_point(document)


@dataclass(frozen=True)
class Compared:
    """One schedule's period beside the optimum of its kind and the bound that is printed for it."""

    schedule: str
    bound_ns: int
    optimum: Interval
    period_ns: float

    @property
    def gap(self) -> float:
        """How much longer the period is than the best that was found."""
        return self.period_ns / self.optimum.most_ns - 1


def compared(cell: SmallCell) -> Iterator[Compared]:
    """Yield each schedule of a cell, simulated, beside the proven interval of its optimum."""
    point, optima = cell.point(), dict[bool, Interval]()
    for variant in map(in_pipelines, point.variants):
        splits = variant.name in SPLIT
        costs = cell_costs(point.topology, variant)
        if splits not in optima:
            optima[splits] = OptimalCell(costs, splits=splits).period()
        bounds = lower_bounds(point.topology, variant, _ITERATIONS)
        assert bounds is not None
        simulation = simulate_variant(point.topology, variant, _ITERATIONS, effects=IDEAL)
        yield Compared(variant.name, bounds.period.time_ns, optima[splits], simulation.iteration_time_ns(_WARMUP))


def _cells(sizes: tuple[tuple[int, int], ...], seed: int) -> tuple[SmallCell, ...]:
    """Return one cell of each size for every combination of memory, sharing and evenness."""
    return tuple(
        SmallCell(stages, microbatches, held, shared, uneven, seed)
        for stages, microbatches in sizes
        for held in dict.fromkeys((stages, stages + 2, 2 * stages, None))
        for shared in (False, True)
        for uneven in (False, True)
    )


FEW, MANY = _cells(((2, 4),), 1), _cells(((3, 4),), 1) + _cells(((3, 6), (4, 6)), 2)
