"""Refuse, before anything is started, what runs only on hosts with a network of their own."""

from collections.abc import Sequence

from wanbed.ground.errors import InputError
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.followed_packets import MODELLED_CONGESTION_CONTROLS
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.trainings.program.resolution import ProgramVariant
from wanbed.runner.trainings.torch_baseline.resolution import BaselineVariant
from wanbed.testbed.relay.relay_substrate import check_can_be_relayed
from wanbed.testbed.substrate.offer import RELAY

_ELSEWHERE = "run it where namespaces are allowed (--substrate kernel or guest)"


def check_relay(points: Sequence[SweepPoint], substrate: str) -> None:
    """Raise InputError if ``substrate`` is the relay and a sweep point has what it cannot carry."""
    if substrate != RELAY:
        return
    for point in points:
        check_can_be_relayed(point.topology)
        check_exclusions(
            Exclusion("fail", "hosts of a relay have no interface to lose", _ELSEWHERE, when=bool(point.faults)),
            Exclusion(
                "background", "a relay carries connections of ranks only", _ELSEWHERE, when=bool(point.background)
            ),
            where=f"--substrate {RELAY}: ",
        )
        for variant in point.variants:
            _check_variant(variant)


def _check_variant(variant: ResolvedVariant) -> None:
    where, transport = f"--substrate relay: variant {variant.name!r}: ", variant.transport
    own = "opens connections of its own, which a relay cannot tell apart"
    check_exclusions(
        Exclusion(
            "program",
            f"it {own}",
            f"give a schedule, or {_ELSEWHERE}",
            when=isinstance(variant, ProgramVariant),
            leave="",
        ),
        Exclusion(
            "jobs",
            "a relay models one TCP for all, and jobs may differ in theirs",
            _ELSEWHERE,
            when=bool(variant.beside),
        ),
        Exclusion(
            "schedule",
            f"{variant.spec.schedule} {own}",
            f"give another one, or {_ELSEWHERE}",
            when=isinstance(variant, BaselineVariant),
            leave="",
        ),
        Exclusion(
            "transport.all_reduce",
            f"{transport.all_reduce} {own}",
            _ELSEWHERE,
            when=not transport.sums_over_transport,
        ),
        where=where,
    )
    if variant.tcp.congestion not in MODELLED_CONGESTION_CONTROLS:
        known = " or ".join(sorted(MODELLED_CONGESTION_CONTROLS))
        raise InputError(
            f"{where}transport.congestion: {variant.tcp.congestion} is not modelled: give {known}, or {_ELSEWHERE}"
        )
