"""Record in a trial that its repeats differ, so that a report does not take a simulation for exact."""

from typing import Any

from results.records.documents import TIMES_DRAWN
from runner.resolve.resolved_variant import ResolvedVariant


def variation_facts(variant: ResolvedVariant, *, draws_packets: bool = False) -> dict[str, Any]:
    """Return a trial's fact on drawn compute times, or losses and jitter; none if nothing was drawn."""
    return {TIMES_DRAWN: True} if variant.varies or draws_packets else {}
