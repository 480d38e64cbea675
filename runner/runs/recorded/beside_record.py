"""Record what ran beside a trial."""

from collections.abc import Sequence
from typing import Any

from runner.resolve.jobs.background_flow import BackgroundFlow
from runner.resolve.resolved_variant import ResolvedVariant


def beside_facts(variant: ResolvedVariant, while_all_ran_ns: int | None) -> dict[str, Any]:
    """Return the entry of a trial beside other jobs, empty of one alone.

    ``while_all_ran_ns`` is when the first of the jobs had done its last iteration, on the trial's time line.
    """
    if not variant.beside or while_all_ran_ns is None:
        return {}
    return {
        "beside": {
            "job": variant.job,
            "variant": variant.alone,
            "others": [other.name for other in variant.beside],
            "until_ns": while_all_ran_ns,
        }
    }


def background_facts(flows: Sequence[BackgroundFlow]) -> dict[str, Any]:
    """Return the entry of a trial with flows in the background, empty of one without."""
    return {"background": [flow.document() for flow in flows]} if flows else {}
