"""Resolve what a training learns from, and what of it is held out."""

from pathlib import Path

from wanbed.ground.strict_model import InputError
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.training_spec import TrainingSpec
from wanbed.runner.resolve.stage_costs import model_config
from wanbed.workloads.model.corpora import CORPORA, text_bytes
from wanbed.workloads.model.held_out import HeldOut


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
