"""Gather the losses of a trial, and evaluate after its training, on held-out sequences, what replicas have learnt."""

from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from math import fsum, isfinite
from pathlib import Path
from typing import Any, Self

import numpy as np

from wanbed.results.records.run_store import TrialPart
from wanbed.results.records.schema import HELD_OUT, TRAINING, ReplicaLossRow
from wanbed.results.records.span_log import SpanLogContents
from wanbed.results.records.trial_tables import LOSSES_TABLE
from wanbed.runner.companions.losses.resolution import held_out, learning_seed
from wanbed.runner.emulation.companion import Companion
from wanbed.runner.emulation.rank_configs import SharedConfig
from wanbed.runner.emulation.running_trial import RunningTrial, Trained
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.stage_costs import model_config
from wanbed.runner.runs.faults import TrialError
from wanbed.testbed.hosts.process_group import ProcessGroup
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.workloads.evaluation import EvaluationConfig, ReplicaLoss, read_losses
from wanbed.workloads.gpt.learnt_text import CORPORA, digest


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
        held_out = _held_out_losses(trial.testbed, trial.point, trial.variant, trial.setting)
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


_PROGRAM = "wanbed.workloads.evaluation"

_PATIENCE_S = 3600.0
"""The most time that an evaluation may take: longer than any that somebody waits for."""


def _held_out_losses(
    testbed: RunningTestbed, point: SweepPoint, variant: ResolvedVariant, setting: SharedConfig
) -> list[ReplicaLoss]:
    """Return the held-out loss of every replica in every snapshot of the trial, [] if nothing is to be evaluated.

    It is computed on the host of the first rank, after all ranks have ended. Raise TrialError, one line, if it fails.
    """
    snapshots, part = setting.snapshots(point, variant), held_out(point.spec.training)
    if snapshots is None or part is None:
        return []
    path, output = setting.folder / "evaluation.json", setting.folder / "held-out-losses"
    config = EvaluationConfig(
        model=model_config(point.spec, "an evaluation"),
        stages=variant.placement.stages,
        pipelines=variant.pipelines,
        snapshots=snapshots,
        held_out=part,
        precision=point.spec.training.precision,
        device=setting.device or "cpu",
        threads=point.spec.compute.threads or 1,
        output=str(output),
        text=point.text,
        parent_pid=setting.parent_pid,
    )
    config.write(path)
    place = variant.placement.places[0]
    start = partial(testbed.start_module, place.host.name, _PROGRAM, [str(path)], gpu=place.gpu)
    with ProcessGroup() as group:
        group.start(start, Path(setting.folder / "evaluation.words"))
        if not group.wait_for_all(_PATIENCE_S):
            raise TrialError(
                f"training.evaluate_every: the evaluation of {variant.name} took more than {_PATIENCE_S:.0f} s: give a "
                "larger number, or fewer held_out_sequences"
            )
        (status,), stderr_tail = group.statuses(), group.stderr_tail(0)
    if status != 0:
        raise TrialError(
            f"training.evaluate_every: the evaluation of {variant.name} ended with status {status}"
            + (f": {stderr_tail}" if stderr_tail else "")
        )
    return read_losses(output)


COMPANION = Losses
