"""Check that a training which is no pipeline uses what was written for it, so that nothing is silently ignored.

A run's document has every default filled in, so that only a value beside the default counts as written.
"""

from collections.abc import Iterator

from wanbed.ground.errors import InputError
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.ground.strict_model import StrictModel
from wanbed.results.text import list_text
from wanbed.runner.experiment.compute_spec import ComputeSpec
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.model_spec import DEFAULT_MODEL, NAMED_MODELS
from wanbed.runner.experiment.training_spec import TrainingSpec
from wanbed.runner.experiment.variant_spec import VariantSpec
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.runner.trainings.registry import TRACE, TRAININGS, training_title

_OF_EVERY_VARIANT = {"name", "schedule", "program", "prefill"}

_DECISIVE = ("kind", "options", "profile", "trace")
"""The fields of ``compute`` that decide about the defaults of the others."""


def check_variant_in_use(written: WrittenVariant) -> None:
    """Raise InputError for a field of the variant that its training does not use, and for prefill in its bubbles."""
    schedule = written.variant.schedule
    if written.is_prefilled:
        title = training_title(schedule)
        raise InputError(f"{written.field}.prefill: the bubbles of {title} are not known: give prefill: none")
    for path in _given_to_variant(written.variant):
        if not TRAININGS[schedule].uses_field(path):
            check_exclusions(_unused(f"{written.field}.{path}", [schedule]))


def unused_sections(spec: ExperimentSpec) -> Iterator[Exclusion]:
    """Yield the model, and the fields of ``compute`` or ``training``, that no variant uses."""
    schedules = list(dict.fromkeys(variant.schedule for variant in spec.variants))
    if any(each not in TRAININGS for each in schedules):
        return
    for path in _given_to_all(spec):
        if not any(TRAININGS[each].uses_field(path) for each in schedules):
            yield _unused(path, schedules)


def _unused(field: str, schedules: list[str]) -> Exclusion:
    return Exclusion(field, f"not used by {list_text([training_title(each) for each in schedules])}")


def _given_to_variant(variant: VariantSpec) -> Iterator[str]:
    usual = VariantSpec(name=variant.name, schedule=TRACE)
    return (path for path in _given(variant, usual) if path not in _OF_EVERY_VARIANT)


def _given_to_all(spec: ExperimentSpec) -> Iterator[str]:
    if spec.model not in (None, None if spec.compute.trace else NAMED_MODELS[DEFAULT_MODEL]):
        yield "model"
    decided = ComputeSpec.model_validate({name: getattr(spec.compute, name) for name in _DECISIVE})
    usual = decided.model_copy(update={name: getattr(ComputeSpec(), name) for name in _DECISIVE})
    yield from _given(spec.compute, usual, "compute.")
    yield from _given(spec.training, TrainingSpec(), "training.")


def _given(section: StrictModel, usual: StrictModel, where: str = "") -> Iterator[str]:
    """Yield the paths of the fields whose values are others than usual."""
    for name, field in type(section).model_fields.items():
        value, default = getattr(section, name), getattr(usual, name)
        path = f"{where}{field.alias or name}"
        if isinstance(value, StrictModel) and isinstance(default, StrictModel):
            yield from _given(value, default, f"{path}.")
        elif value != default:
            yield path
