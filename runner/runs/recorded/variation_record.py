"""Record in a trial that its compute times were drawn, so that a report does not take a simulation for exact."""

from typing import Any

from results.records.documents import TIMES_DRAWN
from runner.resolve.resolved_variant import ResolvedVariant


def variation_facts(variant: ResolvedVariant) -> dict[str, Any]:
    """Return a trial's fact on drawn compute times; none if nothing was drawn."""
    return {TIMES_DRAWN: True} if variant.varies else {}
