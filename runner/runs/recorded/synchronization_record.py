"""Record how the replicas of a trial synchronised."""

from dataclasses import asdict
from typing import Any

from runner.resolve.resolved_variant import ResolvedVariant


def synchronization_facts(variant: ResolvedVariant) -> dict[str, Any]:
    """Return a trial's entry on synchronisations, empty where replicas summed gradients in every iteration."""
    return {} if variant.synchronization is None else {"synchronization": asdict(variant.synchronization)}
