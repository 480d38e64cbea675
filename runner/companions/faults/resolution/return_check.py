"""Refuse what cannot come back after it has failed."""

from collections.abc import Sequence
from itertools import combinations

from wanbed.ground.strict_model import InputError
from wanbed.runner.companions.faults.resolution.planned_fault import PlannedFault
from wanbed.runner.resolve.resolved_variant import ResolvedVariant


def check_returns(faults: Sequence[PlannedFault], variant: ResolvedVariant) -> None:
    """Raise InputError for a fault of ``fail``, in its order, whose ranks in ``variant`` cannot come back.

    Only a replica of a star with a quorum can, which is not the one that gathers, and only once it has failed.
    """
    hit = [_ranks(fault, variant) for fault in faults]
    for position, (fault, ranks) in enumerate(zip(faults, hit, strict=True)):
        if fault.back_ns is None or not ranks:
            continue
        if not variant.goes_on_without:
            raise InputError(
                f"fail.{position}.for: only a replica of a star with a quorum comes back, and {variant.name!r} has "
                "none: leave for out, or the variant"
            )
        if not ranks <= variant.goes_on_without:
            raise InputError(
                f"fail.{position}.for: the others do not go on without rank 0, which gathers in {variant.name!r}: "
                "leave for out, or let another one fail"
            )
    for (first, one), (second, other) in combinations(enumerate(faults), 2):
        returns = one.back_ns is not None or other.back_ns is not None
        if returns and hit[first] & hit[second] and one.overlaps(other):
            raise InputError(
                f"fail.{second}: {one} and {other} fail together in {variant.name!r}, before one of them is back: give "
                "other times"
            )


def _ranks(fault: PlannedFault, variant: ResolvedVariant) -> frozenset[int]:
    places = enumerate(variant.placement.places)
    return frozenset(rank for rank, place in places if fault.hits(rank, place.host.name))
