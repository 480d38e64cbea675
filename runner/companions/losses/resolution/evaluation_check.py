"""Check, while the file is read, that what is asked of an evaluation can be evaluated."""

from collections.abc import Sequence

from wanbed.ground.strict_model import InputError
from wanbed.ground.units import format_size
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.training_spec import TrainingSpec
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.stage_costs import model_config
from wanbed.runner.trainings.program.resolution.program_variant import ProgramVariant
from wanbed.workloads.evaluation.snapshots import MAX_SNAPSHOT_BYTES, evaluated_after

_OF_AN_EVALUATION = ("held_out", "held_out_sequences")


def check_learning(spec: ExperimentSpec, variants: Sequence[ResolvedVariant]) -> None:
    """Raise InputError for fields on evaluation and seeds that have nothing to work on, or too much."""
    training, title = spec.training, spec.compute.backend.title
    for name in ("evaluate_every", "vary_seed"):
        if getattr(training, name) and not spec.compute.backend.trains:
            raise InputError(f"training.{name}: {title} learns nothing: give compute: {{kind: torch}}, or leave it out")
    if training.evaluate_every is None:
        for name in _OF_AN_EVALUATION:
            if getattr(training, name) != TrainingSpec.model_fields[name].default:
                raise InputError(
                    f"training.{name}: nothing is evaluated: give training.evaluate_every, or leave it out"
                )
        return
    if training.text is None and training.held_out != TrainingSpec.model_fields["held_out"].default:
        raise InputError("training.held_out: synthetic tokens are not held out, others are made: leave it out")
    if training.evaluate_every > training.iterations:
        raise InputError(
            f"training.evaluate_every: {training.evaluate_every}, of {training.iterations} iterations: give fewer"
        )
    for field, given in (("engine", spec.engine == "rack"), ("jobs", spec.jobs), ("fail", spec.fail)):
        if given:
            raise InputError(
                f"training.evaluate_every: weights are kept of an undisturbed training on one machine: leave {field} "
                "out, or evaluate_every"
            )
    _check_snapshots(spec, training.evaluate_every, variants)


def _check_snapshots(spec: ExperimentSpec, every: int, variants: Sequence[ResolvedVariant]) -> None:
    model = model_config(spec, "an evaluation")
    count = len(evaluated_after(spec.training.iterations, every))
    pipelines = max((variant.pipelines for variant in variants if not isinstance(variant, ProgramVariant)), default=0)
    # Kept in fp32 whatever the precision.
    size_bytes = 4 * model.parameters(0, 1) * pipelines * count
    if size_bytes > MAX_SNAPSHOT_BYTES:
        raise InputError(
            f"training.evaluate_every: {count} evaluations keep {format_size(size_bytes)} of weights until a trial has "
            f"ended, more than {format_size(MAX_SNAPSHOT_BYTES)}: give a larger number"
        )
