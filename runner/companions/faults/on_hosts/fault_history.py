"""Record what happened to a training through faults: its attempts and its failures, for the trial's record."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from wanbed.runner.companions.faults.on_hosts.attempt import Attempt
from wanbed.runner.companions.faults.on_hosts.fault_facts import fault_facts
from wanbed.runner.companions.faults.on_hosts.injection import InjectedFault
from wanbed.runner.companions.faults.resolution import FaultPlan
from wanbed.runner.emulation.rank_configs import SharedConfig
from wanbed.runner.emulation.time_line import moved_log
from wanbed.testbed.rack.driver.time_line import TimeLine


@dataclass(frozen=True)
class FaultHistory:
    """The attempts of a trial's training and what failed meanwhile, as noted where it happened.

    ``iterations`` is how many were planned, ``setting`` that of the trial. ``ended_by`` and ``finished`` are as for
    ``fault_facts``.
    """

    plan: FaultPlan
    iterations: int
    attempts: Sequence[Attempt]
    injected: Sequence[InjectedFault]
    setting: SharedConfig
    ended_by: str | None
    finished: bool

    def facts(self, line: TimeLine | None) -> dict[str, Any]:
        """Return the entry ``faults`` of the trial's record.

        With ``line`` hosts are on several machines: all moments are put on the driver's clock, and each failure has
        how far that moment can be off, ``clock_error_ns``.
        """
        if line is None:
            return self._facts(self.attempts, self.injected)
        facts = self._facts(
            [_moved_attempt(each, line) for each in self.attempts], [_moved_fault(each, line) for each in self.injected]
        )
        for entry, each in zip(facts["injected"], self.injected, strict=True):
            error_ns = 0 if each.timed_by is None else line.error_ns(each.timed_by)
            entry["clock_error_ns"] = ceil(error_ns / self.setting.dilation)
        return facts

    def _facts(self, attempts: Sequence[Attempt], injected: Sequence[InjectedFault]) -> dict[str, Any]:
        planned = self.plan, self.iterations
        return fault_facts(planned, attempts, injected, self.setting, self.ended_by, finished=self.finished)


def _moved_attempt(attempt: Attempt, line: TimeLine) -> Attempt:
    places = attempt.variant.placement.places
    return replace(
        attempt,
        logs=tuple(moved_log(log, line) for log in attempt.logs),
        ends=tuple(
            each
            if each.ended_ns is None
            else replace(each, ended_ns=_driver_ns(each.ended_ns, places[each.rank].host.name, line))
            for each in attempt.ends
        ),
        faults=tuple(_moved_fault(each, line) for each in attempt.faults),
    )


def _moved_fault(each: InjectedFault, line: TimeLine) -> InjectedFault:
    if each.timed_by is None:
        return each
    return replace(each, applied_ns=_driver_ns(each.applied_ns, each.timed_by, line))


def _driver_ns(noted_ns: int, host: str, line: TimeLine) -> int:
    """Return when that was on the driver's clock; a host's machine noted it, less what its clock was ahead."""
    return line.epoch_ns + line.trial_ns(host, noted_ns - line.epoch_ns)
