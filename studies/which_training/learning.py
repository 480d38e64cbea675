"""Measure what iterations of each method are worth: a small GPT learns real text in torch, with several seeds.

Joined with the map, the time to a loss is the iterations to it x the simulated time of an iteration.
"""

import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import sha256
from math import ceil
from pathlib import Path
from statistics import median

from studies.which_training.grid import Grid
from studies.which_training.setting import DATACENTERS, GPUS_EACH, SYNC_EVERY, Method, Wan
from studies.which_training.tiny_training import TinyTraining, held_out_losses
from wanbed.ground.files import write_whole
from wanbed.results.text import list_text, table_line
from wanbed.workloads.synchronization.synchronization import Synchronization, WireFormat

DATA_PARALLEL = "data parallel"
"""As what all synchronous methods learn: each sums the gradients of all sequences of an iteration."""

SEEDS = 3

ITERATIONS = 4 * SYNC_EVERY

EVALUATE_EVERY = 5

LEARNING_RATES = (0.0005, 0.001, 0.002, 0.004)
"""Each learner is taken at the one of these at which it learns most, so that none has a rate that suits another."""

LOSS_STEP = 0.05
"""Losses to reach are multiples of it."""

# The same as the options of the map's candidates. ATOM's swapping changes when something is computed, and not what.
_LEARNERS: dict[str, tuple[int, Synchronization | None]] = {
    DATA_PARALLEL: (1, None),
    Method.DILOCO: (len(DATACENTERS), Synchronization(SYNC_EVERY)),
    Method.STREAMING: (
        len(DATACENTERS),
        Synchronization(SYNC_EVERY, fragments=5, delay=5, alpha=0.5, wire=WireFormat.FP4),
    ),
    Method.ATOM: (len(DATACENTERS) * GPUS_EACH, Synchronization(SYNC_EVERY, delay=5)),
}

LEARNERS = tuple(_LEARNERS)


def learner_of(method: Method) -> str:
    """Return as what a method learns."""
    return DATA_PARALLEL if method.synchronous else method


@dataclass(frozen=True)
class Curve:
    """The held-out losses of one training, each with how many iterations had ended."""

    learner: str
    learning_rate: float
    seed: int
    losses: tuple[tuple[int, float], ...]

    @property
    def last(self) -> float:
        """The held-out loss at the end."""
        return self.losses[-1][1]

    @property
    def least(self) -> float:
        """The lowest held-out loss."""
        return min(loss for _, loss in self.losses)

    def iterations_to(self, loss: float) -> int:
        """Return after how many iterations it first was at a loss or below. Raise ValueError if it never was."""
        for iterations, reached in self.losses:
            if reached <= loss:
                return iterations
        raise ValueError(f"{self.learner}, seed {self.seed}: no loss of {loss} or below")


def training_of(learner: str, learning_rate: float, seed: int) -> TinyTraining:
    """Return the training of a learner at a learning rate with a seed."""
    replicas, synchronization = _LEARNERS[learner]
    return TinyTraining(replicas, synchronization, seed, ITERATIONS, EVALUATE_EVERY, learning_rate)


def learnt(folder: Path, log: Callable[[str], None], jobs: int | None = None) -> list[Curve]:
    """Train every learner at every learning rate with every seed, and return the curves of each at its best rate.

    A training that is in ``folder`` is not done again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    trainings = {
        (learner, rate, seed): training_of(learner, rate, seed)
        for learner in LEARNERS
        for rate in LEARNING_RATES
        for seed in range(SEEDS)
    }
    left = [training for training in trainings.values() if not _file(training, folder).is_file()]
    log(f"learnt: {len(trainings) - len(left)} of {len(trainings)} trainings are there")
    if left:
        spawned = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs or len(os.sched_getaffinity(0)), mp_context=spawned) as processes:
            for done in [processes.submit(_keep_losses, training, folder) for training in left]:
                done.result()
    return at_best_rates([Curve(*of, tuple(_read(training, folder))) for of, training in trainings.items()])


def at_best_rates(curves: Sequence[Curve]) -> list[Curve]:
    """Return the curves of each learner at the learning rate with the lowest median of its seeds' last losses."""
    last: dict[tuple[str, float], list[float]] = {}
    for curve in curves:
        last.setdefault((curve.learner, curve.learning_rate), []).append(curve.last)
    best = {
        learner: min((rate for name, rate in last if name == learner), key=lambda rate: median(last[learner, rate]))
        for learner in dict.fromkeys(name for name, _ in last)
    }
    return [curve for curve in curves if curve.learning_rate == best[curve.learner]]


def common_loss(curves: Iterable[Curve]) -> float:
    """Return the lowest multiple of ``LOSS_STEP`` that every training reached."""
    return round(ceil(max(curve.least for curve in curves) / LOSS_STEP - 1e-9) * LOSS_STEP, 2)


def iterations_to_loss(curves: Sequence[Curve], learner: str, loss: float) -> tuple[float, int, int]:
    """Return the median over seeds of the iterations that a learner takes to a loss, the fewest and the most."""
    taken = [curve.iterations_to(loss) for curve in curves if curve.learner == learner]
    return median(taken), min(taken), max(taken)


def _keep_losses(training: TinyTraining, folder: Path) -> None:
    kept = {"training": asdict(training), "losses": held_out_losses(training)}
    write_whole(_file(training, folder), json.dumps(kept, indent=1) + "\n")


def _read(training: TinyTraining, folder: Path) -> list[tuple[int, float]]:
    kept = json.loads(_file(training, folder).read_text(encoding="utf-8"))
    return [(int(iterations), float(loss)) for iterations, loss in kept["losses"]]


def _file(training: TinyTraining, folder: Path) -> Path:
    return folder / f"{sha256(json.dumps(asdict(training), sort_keys=True).encode()).hexdigest()[:16]}.json"


SHOWN_MS = 50
"""The latency of the table of times: the others differ by less than its figures show."""


@dataclass(frozen=True)
class LossTimes:
    """The map joined with learning: what each method takes to ``loss``, the lowest that every training reached."""

    grid: Grid
    curves: Sequence[Curve]
    loss: float

    @classmethod
    def of(cls, grid: Grid, curves: Sequence[Curve]) -> "LossTimes":
        """Join them at the lowest common loss."""
        return cls(grid, curves, common_loss(curves))

    def iterations(self, method: Method) -> tuple[float, int, int]:
        """Return the median over seeds of the iterations that a method takes, the fewest and the most."""
        return iterations_to_loss(self.curves, learner_of(method), self.loss)

    def time_s(self, method: Method, wan: Wan) -> float:
        """Return the joined time to the loss: median iterations x the simulated time of one at that WAN."""
        return self.iterations(method)[0] * self.grid.price(wan, method).iteration_s

    def soonest(self, wan: Wan) -> tuple[Method, ...]:
        """Return the methods with the shortest joined time; several where iterations are as many to the seed.

        A method counts if its time with the fewest iterations of any seed is below the shortest with the most.
        """
        least_s = min(self.iterations(method)[2] * self.grid.price(wan, method).iteration_s for method in Method)
        return tuple(
            method
            for method in Method
            if self.iterations(method)[1] * self.grid.price(wan, method).iteration_s <= least_s
        )


def learning_text(times: LossTimes) -> str:
    """Return the tables of what was learnt, and of the joined times."""
    return "\n\n".join((f"Held-out loss to reach: {times.loss:.2f}.", _iterations(times), _joined(times)))


def _iterations(times: LossTimes) -> str:
    base = times.iterations(Method.ATLAS)[0]
    lines = [
        table_line(
            [
                "learns as",
                "best learning rate",
                "iterations to the loss (fewest to most of the seeds)",
                "tokens, times those of DP",
            ]
        ),
        table_line(["---"] * 4),
    ]
    seen = dict.fromkeys(learner_of(method) for method in Method)
    for learner in seen:
        own, least, most = iterations_to_loss(times.curves, learner, times.loss)
        rate = next(curve.learning_rate for curve in times.curves if curve.learner == learner)
        lines.append(table_line([learner, f"{rate:g}", f"{own:g} ({least} to {most})", f"{own / base:.2f}x"]))
    return "\n".join(lines)


def _joined(times: LossTimes) -> str:
    wans = [wan for wan in times.grid.wans if wan.latency_ms == SHOWN_MS]
    rows = [
        table_line([f"minutes at {SHOWN_MS} ms", *(f"{wan.rate_gbps_text} Gbit/s" for wan in wans)]),
        table_line(["---"] * (len(wans) + 1)),
        *(table_line([method, *(f"{times.time_s(method, wan) / 60:.1f}" for wan in wans)]) for method in Method),
        table_line(["soonest, as far as seeds tell", *(list_text(list(times.soonest(wan))) for wan in wans)]),
    ]
    return "\n".join(rows)
