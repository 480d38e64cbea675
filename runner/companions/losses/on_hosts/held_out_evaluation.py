"""Evaluate on held-out sequences what a trial has learnt, after its training has ended."""

from functools import partial
from pathlib import Path

from wanbed.runner.companions.losses.resolution.learnt_text import held_out
from wanbed.runner.emulation.rank_configs import SharedConfig
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.stage_costs import model_config
from wanbed.runner.runs.faults import TrialError
from wanbed.testbed.hosts.process_group import ProcessGroup
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.workloads.evaluation.evaluation import read_losses
from wanbed.workloads.evaluation.evaluation_config import EvaluationConfig, ReplicaLoss

PROGRAM = "wanbed.workloads.evaluation.evaluation"
_PATIENCE_S = 3600.0
"""The most time that an evaluation may take: longer than any that somebody waits for."""


def held_out_losses(
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
    start = partial(testbed.start_module, place.host.name, PROGRAM, [str(path)], gpu=place.gpu)
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
