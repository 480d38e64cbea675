"""Record how the replicas of a trial synchronised, and how much of what they sum crosses the WAN."""

from dataclasses import asdict
from typing import Any

from runner.resolve.resolved_variant import ResolvedVariant


def synchronization_facts(variant: ResolvedVariant) -> dict[str, Any]:
    """Return a trial's entry on synchronisations, empty where replicas summed gradients in every iteration."""
    return {} if variant.synchronization is None else {"synchronization": asdict(variant.synchronization)}


def summed_facts(variant: ResolvedVariant) -> dict[str, Any]:
    """Return a trial's fact about its all-reduces: by stage the bytes over the WAN for each byte that a replica sums.

    Nothing for a trace and a program, whose collectives are their own.
    """
    if variant.trace is not None or variant.program is not None:
        return {}
    return {"all_reduce_wan_ratio": [variant.wan_ratio(stage) for stage in range(variant.placement.stages)]}
