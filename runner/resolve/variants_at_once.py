"""Work out which variants of several jobs run at once, and what each of them is called beside the others."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from wanbed.ground.strict_model import InputError
from wanbed.results.text.number_text import list_text
from wanbed.runner.experiment.job_spec import JobSpec
from wanbed.runner.experiment.quantities import MAX_NAME_LENGTH
from wanbed.runner.resolve.pipeline_variant import AmongJobs, PipelineVariant

MAX_COMBINATIONS = 100


def name_beside(own: str, others: Sequence[str]) -> str:
    """Return the name of a variant while those of other jobs run."""
    return f"{own} beside {list_text(list(others))}"


def variants_at_once(jobs: Sequence[JobSpec], alone: Sequence[PipelineVariant]) -> tuple[PipelineVariant, ...]:
    """Return each variant once more for every combination of one variant of each job, beside the others.

    Those of one combination follow each other, in order of the jobs. Raise InputError for too many combinations, and
    for names that are too long or clash.
    """
    by_name: Mapping[str, PipelineVariant] = {variant.name: variant for variant in alone}
    combinations = list(product(*(job.variants for job in jobs)))
    if len(combinations) > MAX_COMBINATIONS:
        raise InputError(
            f"jobs: {len(combinations)} combinations of a variant of each job, more than {MAX_COMBINATIONS}: give jobs "
            "fewer variants"
        )
    found: list[PipelineVariant] = []
    for names in combinations:
        members = [by_name[name] for name in names]
        for position, variant in enumerate(members):
            others = tuple(members[:position] + members[position + 1 :])
            name = name_beside(variant.name, [other.name for other in others])
            if len(name) > MAX_NAME_LENGTH:
                raise InputError(f"jobs: {name!r} is longer than the {MAX_NAME_LENGTH} characters of a name: shorten")
            if name in by_name:
                raise InputError(f"jobs: a variant is named {name!r}, as that one is beside others: rename it")
            place = AmongJobs(variant.jobs.job, others, position, variant.name)
            named = variant.spec.model_copy(update={"name": name})
            found.append(replace(variant, spec=named, jobs=place))
    return tuple(found)
