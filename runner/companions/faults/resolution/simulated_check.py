"""Refuse failures that a simulation does not know."""

from collections.abc import Sequence

from wanbed.ground.strict_model import InputError
from wanbed.runner.companions.faults.spec import FaultSpec
from wanbed.runner.resolve.resolved_variant import ResolvedVariant

_REMEDY = "leave fail out, or give engine: emulate (clock: virtual)"


def check_simulated(faults: Sequence[FaultSpec], variants: Sequence[ResolvedVariant]) -> None:
    """Raise InputError unless only ranks fail, and the others of their variant go on without them."""
    for variant in variants:
        if not variant.goes_on_without:
            raise InputError(
                f"fail: a simulation has no failures but of replicas of a star with a quorum, and {variant.name!r} has "
                f"none: {_REMEDY}"
            )
    for position, fault in enumerate(faults):
        if fault.rank is None:
            raise InputError(f"fail.{position}.{fault.kind}: in a simulation only ranks fail: give rank, {_REMEDY}")
        if any(fault.rank not in variant.goes_on_without for variant in variants):
            raise InputError(
                f"fail.{position}.rank: {fault.rank}, and a simulation does not end with the replica that gathers: "
                f"{_REMEDY}"
            )
