"""Resolve the data that a training learns from and is evaluated on, and check that it can be evaluated."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from wanbed.ground.errors import InputError
from wanbed.ground.exclusions import Declared, Exclusion, Refusal
from wanbed.ground.units import format_size
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.training_spec import TrainingSpec
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.stage_costs import model_config
from wanbed.runner.trainings.program.resolution import ProgramVariant
from wanbed.workloads.gpt.learnt_text import CORPORA, HeldOut, text_bytes
from wanbed.workloads.kept_files import MAX_SNAPSHOT_BYTES, evaluated_after


def learning_refusals(spec: ExperimentSpec, variants: Sequence[ResolvedVariant]) -> Iterator[Declared]:
    """Yield fields on evaluation and seeds that have nothing to work on, or too much."""
    training, backend = spec.training, spec.compute.backend
    yield Exclusion(
        ("training.evaluate_every", "training.vary_seed"),
        f"{backend.title} learns nothing",
        "give compute: {kind: torch}",
        when=not backend.trains,
        given_in=spec,
    )
    yield Exclusion(
        ("training.held_out", "training.held_out_sequences"),
        "nothing is evaluated",
        "give training.evaluate_every",
        when=training.evaluate_every is None,
        given_in=spec,
    )
    yield Exclusion(
        "training.held_out",
        "synthetic tokens are not held out, others are made",
        when=training.text is None,
        given_in=spec,
    )
    if training.evaluate_every is None:
        return
    undisturbed = "weights are kept of an undisturbed training on one machine"
    for name, given in (("engine", spec.engine == "rack"), ("jobs", spec.jobs), ("fail", spec.fail)):
        yield Exclusion("training.evaluate_every", undisturbed, when=bool(given), leave=f"{name} or evaluate_every")
    if training.evaluate_every > training.iterations:
        yield Refusal(
            f"training.evaluate_every: {training.evaluate_every}, of {training.iterations} iterations: give fewer"
        )
    yield from _too_many_snapshots(spec, training.evaluate_every, variants)


def _too_many_snapshots(spec: ExperimentSpec, every: int, variants: Sequence[ResolvedVariant]) -> Iterator[Refusal]:
    model = model_config(spec, "an evaluation")
    count = len(evaluated_after(spec.training.iterations, every))
    pipelines = max((variant.pipelines for variant in variants if not isinstance(variant, ProgramVariant)), default=0)
    # Kept in fp32 whatever the precision.
    size_bytes = 4 * model.parameters(0, 1) * pipelines * count
    if size_bytes > MAX_SNAPSHOT_BYTES:
        yield Refusal(
            f"training.evaluate_every: {count} evaluations keep {format_size(size_bytes)} of weights until a trial has "
            f"ended, more than {format_size(MAX_SNAPSHOT_BYTES)}: give a larger number"
        )


def learning_seed(spec: ExperimentSpec, repeat: int) -> int:
    """Return the seed of the weights and tokens of that repeat: ``seed``, plus the repeat with ``vary_seed``."""
    return spec.seed + repeat if spec.training.vary_seed else spec.seed


def held_out(training: TrainingSpec) -> HeldOut | None:
    """Return what is held out from learning, None if nothing is evaluated."""
    if training.evaluate_every is None:
        return None
    return HeldOut(training.held_out, training.held_out_sequences)


def resolve_text(spec: ExperimentSpec, directory: Path) -> str | None:
    """Return what the model learns from: a corpus' name or a file's path, None for synthetic tokens.

    Raise InputError if there is no such text, if it is too short, and where nothing learns from it.
    """
    text = spec.training.text
    if text is None:
        return None
    if not spec.compute.backend.trains:
        title = spec.compute.backend.title
        raise InputError(f"training.text: {title} reads no text: give compute: {{kind: torch}}")
    found, shown = text, text
    if text not in CORPORA:
        path = directory / text
        if not path.is_file():
            known = ", ".join(CORPORA)
            raise InputError(f"training.text: {path} is no file: give the path of a text, or one of {known}")
        found, shown = str(path.resolve()), str(path)
    length = model_config(spec, "a text").context + 1
    try:
        size_bytes = len(text_bytes(found))
        part = held_out(spec.training)
        if part is not None:
            part.check(shown, size_bytes, length)
        elif size_bytes < length:
            raise ValueError(f"text: {shown} holds {size_bytes} bytes, a sequence and the token after it take {length}")
    except ValueError as fault:
        raise InputError(f"training.{fault}: give a longer text, or a model of a shorter context") from None
    return found
