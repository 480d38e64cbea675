"""Refuse, before anything is started, what runs only on hosts with a network of their own."""

from collections.abc import Sequence

from wanbed.ground.errors import InputError
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.runs.not_modelled import MODELLED_CONGESTION_CONTROLS
from wanbed.runner.trainings.program.resolution import ProgramVariant
from wanbed.runner.trainings.torch_baseline.resolution import BaselineVariant
from wanbed.testbed.relay.relay_substrate import check_can_be_relayed
from wanbed.testbed.substrate.offer import RELAY

_ELSEWHERE = "or run it where namespaces are allowed (--substrate kernel or guest)"


def check_relay(points: Sequence[SweepPoint], substrate: str) -> None:
    """Raise InputError if ``substrate`` is the relay and a sweep point has what it cannot carry."""
    if substrate != RELAY:
        return
    for point in points:
        check_can_be_relayed(point.topology)
        if point.faults:
            raise InputError(
                f"--substrate relay: fail: hosts of a relay have no interface to lose: leave it out, {_ELSEWHERE}"
            )
        if point.background:
            raise InputError(
                f"--substrate relay: background: a relay carries connections of ranks only: leave it out, {_ELSEWHERE}"
            )
        for variant in point.variants:
            _check_variant(variant)


def _check_variant(variant: ResolvedVariant) -> None:
    where = f"--substrate relay: variant {variant.name!r}"
    if isinstance(variant, ProgramVariant):
        raise InputError(
            f"{where}: a program opens connections of its own, which a relay cannot tell apart: give a schedule, "
            f"{_ELSEWHERE}"
        )
    if variant.beside:
        raise InputError(
            f"{where}: a relay models one TCP for all, and jobs may differ in theirs: leave jobs out, {_ELSEWHERE}"
        )
    if isinstance(variant, BaselineVariant):
        raise InputError(
            f"{where}: {variant.schedule} opens connections of its own, which a relay cannot tell apart: "
            f"give another schedule, {_ELSEWHERE}"
        )
    if not variant.transport.sums_over_transport:
        raise InputError(
            f"{where}: transport.all_reduce: {variant.transport.all_reduce} opens connections of its own, which a "
            f"relay cannot tell apart: leave it out, {_ELSEWHERE}"
        )
    if variant.tcp.congestion not in MODELLED_CONGESTION_CONTROLS:
        known = " or ".join(sorted(MODELLED_CONGESTION_CONTROLS))
        raise InputError(
            f"{where}: transport.congestion: {variant.tcp.congestion} is not modelled: give {known}, {_ELSEWHERE}"
        )
