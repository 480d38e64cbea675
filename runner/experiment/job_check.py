"""Check that the jobs of an experiment divide its variants among them, and that those can run at once."""

from collections.abc import Sequence

from wanbed.ground.nearest_name import did_you_mean
from wanbed.ground.shown_text import shown
from wanbed.runner.experiment.job_spec import JobSpec
from wanbed.runner.experiment.other_schedules import WITHOUT_PIPELINES
from wanbed.runner.experiment.variant_spec import VariantSpec


def check_jobs(jobs: Sequence[JobSpec], variants: Sequence[VariantSpec], *, prefills: bool, fails: bool) -> None:
    """Raise ValueError if jobs are fewer than two or named alike, or if a variant is in none of them or in several.

    Nor do programs, traces and prefill run beside another job, and nothing is let fail there.
    """
    if len(jobs) < 2:
        raise ValueError("jobs: a single one shares the WAN with nobody: give two or more, or leave jobs out")
    if prefills:
        raise ValueError("jobs: prefill does not run beside another job: leave prefill or jobs out")
    if fails:
        raise ValueError("fail: nothing is let fail beside another job: leave fail or jobs out")
    names = [job.name for job in jobs]
    homes: dict[str, str] = {}
    known = [variant.name for variant in variants]
    for position, job in enumerate(jobs):
        if job.name in names[:position]:
            raise ValueError(f"jobs.{position}.name: {shown(job.name)} is given twice: give each job its own")
        for name in job.variants:
            if name not in known:
                remedy = did_you_mean(name, known, f"there are {', '.join(known)}")
                raise ValueError(f"jobs.{position}.variants: no variant {shown(name)}, {remedy}")
            if name in homes:
                raise ValueError(
                    f"jobs.{position}.variants: {shown(name)} is a variant of {shown(homes[name])} already: give each "
                    "job variants of its own"
                )
            homes[name] = job.name
    for position, variant in enumerate(variants):
        if variant.name not in homes:
            raise ValueError(f"variants.{position}: no job has {shown(variant.name)}: add it to one, or leave it out")
        if variant.program is not None or variant.schedule in WITHOUT_PIPELINES:
            what = "program" if variant.program is not None else "schedule"
            raise ValueError(
                f"variants.{position}.{what}: only trainings by a schedule of wanbed's ranks run beside another job: "
                "leave it out, or leave jobs out"
            )
