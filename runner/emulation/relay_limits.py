"""Refuse, before anything is started, what runs only on hosts with a network of their own."""

from collections.abc import Iterator, Sequence

from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.followed_packets import MODELLED_CONGESTION_CONTROLS
from wanbed.runner.trainings.program.resolution import ProgramVariant
from wanbed.runner.trainings.torch_baseline.resolution import BaselineVariant
from wanbed.testbed.relay.relay_substrate import check_can_be_relayed
from wanbed.testbed.substrate.offer import RELAY

_ELSEWHERE = "run it where namespaces are allowed (--substrate kernel or guest)"


def check_relay(points: Sequence[SweepPoint], substrate: str) -> None:
    """Raise InputError if ``substrate`` is the relay and a sweep point has what it cannot carry."""
    for point in points if substrate == RELAY else ():
        check_can_be_relayed(point.topology)
        check_exclusions(*_not_relayed(point), where=f"--substrate {RELAY}: ")


def _not_relayed(point: SweepPoint) -> Iterator[Exclusion]:
    yield Exclusion("fail", "hosts of a relay have no interface to lose", _ELSEWHERE, when=bool(point.faults))
    yield Exclusion("background", "a relay carries connections of ranks only", _ELSEWHERE, when=bool(point.background))
    own = "opens connections of its own, which a relay cannot tell apart"
    known = " or ".join(sorted(MODELLED_CONGESTION_CONTROLS))
    for variant in point.variants:
        where, transport, congestion = f"variant {variant.name!r}: ", variant.transport, variant.tcp.congestion
        yield Exclusion(
            f"{where}program",
            f"it {own}",
            f"give a schedule, or {_ELSEWHERE}",
            when=isinstance(variant, ProgramVariant),
            leave="",
        )
        yield Exclusion(
            f"{where}jobs",
            "a relay models one TCP for all, and jobs may differ in theirs",
            _ELSEWHERE,
            when=bool(variant.beside),
            leave="jobs",
        )
        yield Exclusion(
            f"{where}schedule",
            f"{variant.spec.schedule} {own}",
            f"give another one, or {_ELSEWHERE}",
            when=isinstance(variant, BaselineVariant),
            leave="",
        )
        yield Exclusion(
            f"{where}transport.all_reduce",
            f"{transport.all_reduce} {own}",
            _ELSEWHERE,
            when=not transport.sums_over_transport(on_device=point.spec.compute.backend.sums_on_device),
        )
        yield Exclusion(
            f"{where}transport.congestion",
            f"{congestion} is not modelled",
            f"give {known}, or {_ELSEWHERE}",
            when=congestion not in MODELLED_CONGESTION_CONTROLS,
            leave="",
        )
