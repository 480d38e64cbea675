"""Gather the losses of a trial's replicas, and evaluate what they have learnt."""

from collections import defaultdict
from collections.abc import Iterable
from math import fsum, isfinite
from typing import Any, Self

import numpy as np

from wanbed.results.records.run_store import TrialPart
from wanbed.results.records.schema import HELD_OUT, TRAINING, ReplicaLossRow
from wanbed.results.records.span_log import SpanLogContents
from wanbed.results.records.trial_tables import LOSSES_TABLE
from wanbed.runner.companions.losses.on_hosts.held_out_evaluation import held_out_losses
from wanbed.runner.companions.losses.resolution.learnt_text import learning_seed
from wanbed.runner.emulation.companion import Companion
from wanbed.runner.emulation.running_trial import RunningTrial, Trained
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.workloads.evaluation.evaluation_config import ReplicaLoss
from wanbed.workloads.model.corpora import CORPORA, digest


class Losses(Companion):
    """The losses of a trial, measured while it trains and on held-out text."""

    def __init__(self, trial: RunningTrial) -> None:
        self._trial = trial

    @classmethod
    def of(cls, trial: RunningTrial) -> Self:
        """Return the losses of a trial, of which there are none where nothing is learnt."""
        return cls(trial)

    def left(self, trained: Trained) -> TrialPart:
        """Return the losses that ranks have logged, and those on held-out text, which are computed now."""
        trial = self._trial
        held_out = held_out_losses(trial.testbed, trial.point, trial.variant, trial.setting)
        rows = loss_rows(trained.logs, held_out)
        return TrialPart({LOSSES_TABLE: rows}, learning_facts(trial.point, trial.variant, rows))


def loss_rows(logs: Iterable[SpanLogContents], held_out: Iterable[ReplicaLoss]) -> list[ReplicaLossRow]:
    """Return the rows of the table: what each replica's last stage has logged, then what was evaluated."""
    training = [
        ReplicaLossRow(iteration, TRAINING, log.header.pipeline, loss) for log in logs for iteration, loss in log.losses
    ]
    evaluated = [ReplicaLossRow(each.iteration, HELD_OUT, each.pipeline, each.loss) for each in held_out]
    return [*sorted(training), *sorted(evaluated)]


def mean_losses(rows: Iterable[ReplicaLossRow]) -> list[float]:
    """Return the loss of every iteration, in order: the mean over its replicas; [] where nothing was learnt."""
    losses: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if row.split == TRAINING:
            losses[row.iteration].append(row.loss)
    return [fsum(losses[iteration]) / len(losses[iteration]) for iteration in sorted(losses)]


def largest_error(losses: Iterable[float], expected: Iterable[float]) -> float:
    """Return the largest relative difference of two trainings' losses of one iteration, nan if one is nan.

    Raise ValueError if one has more iterations.
    """
    return float(np.max([abs(one / reference - 1) for one, reference in zip(losses, expected, strict=True)]))


def learning_facts(point: SweepPoint, variant: ResolvedVariant, rows: Iterable[ReplicaLossRow]) -> dict[str, Any]:
    """Return a trial's facts on what it learnt: ``losses``, None where one is not finite, the seed, and the text."""
    losses = mean_losses(rows)
    facts: dict[str, Any] = {"losses": [loss if isfinite(loss) else None for loss in losses]}
    if not losses:
        return facts
    facts["learning_seed"] = learning_seed(point.spec, variant.repeat)
    if point.text is not None:
        named = point.text if point.text in CORPORA else point.spec.training.text
        facts["text"] = {"name": named, "sha256": digest(point.text)}
    return facts
