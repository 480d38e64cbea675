"""Price the candidates of a plan on the machines of a rack, those that are likely to be asked for ahead of time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from wanbed.ground.wanbed_error import WanbedError
from wanbed.runner.planner.effort import Effort
from wanbed.runner.planner.pricing import Pricer, Spread
from wanbed.runner.planner.search_space import Candidate, Price
from wanbed.runner.rack.same_sources import rack_at
from wanbed.runner.rack.shipped.user_modules import schedules_of
from wanbed.runner.rack.simulations.spread_tasks import SpreadTasks, Tasks
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.runs.run_folder import Log

_LOOK_S = 0.1


class RackPricing:
    """The CPUs of a rack as the pricing of one search, see ``wanbed.runner.planner.pricing.AheadPricing``.

    Candidates are converted to variants here, because what that reads may be only on this machine.
    """

    def __init__(
        self,
        tasks: Tasks,
        pricer: Pricer,
        resolve: Callable[[Candidate], PipelineVariant],
        effort: Effort,
    ) -> None:
        self._tasks, self._pricer, self._resolve, self._effort = tasks, pricer, resolve, effort
        self._started: dict[Candidate, Any] = {}
        self._expected: Iterator[Candidate] = iter(())

    def __call__(self, candidate: Candidate) -> Price:
        """Return the price of a candidate, once a machine has simulated it."""
        # No machine tells how far it is.
        self._effort.simulated = None
        if candidate not in self._started:
            self._start(candidate)
        reference = self._started[candidate]
        while not self._tasks.ended([reference], _LOOK_S):
            self._start_expected()
            self._effort.check()
        del self._started[candidate]
        price: Price = self._tasks.result(reference, f"the candidate in {', '.join(candidate.datacenters)}")
        return price

    def expect(self, candidates: Iterator[Candidate]) -> None:
        """Price these as far as there is room, see ``AheadPricing``."""
        self._expected = candidates
        self._start_expected()

    def end(self) -> None:
        """End what nobody has asked for."""
        self._tasks.cancel(self._started.values())

    def _start(self, candidate: Candidate) -> None:
        variant = self._resolve(candidate)
        self._started[candidate] = self._tasks.start(partial(self._pricer.price, variant), schedules_of([variant]))

    def _start_expected(self) -> None:
        room = self._tasks.at_a_time - self._tasks.running(self._started.values())
        while room > 0 and (candidate := next(self._expected, None)) is not None:
            if candidate in self._started:
                continue
            try:
                self._start(candidate)
            except WanbedError:
                # It fails again, and is reported, if it is asked for.
                continue
            room -= 1


def rack_spread_of(tasks: Tasks) -> Spread:
    """Return what prices the candidates of one search after the other by these tasks."""

    @contextmanager
    def spread(
        pricer: Pricer, resolve: Callable[[Candidate], PipelineVariant], effort: Effort
    ) -> Iterator[RackPricing]:
        pricing = RackPricing(tasks, pricer, resolve, effort)
        try:
            yield pricing
        finally:
            pricing.end()

    return spread


@contextmanager
def rack_spread(address: str, log: Log) -> Iterator[Spread]:
    """Yield what prices candidates on the rack at ``address``, for the block. Raises what ``rack_at`` does."""
    with rack_at(address, log) as rack:
        yield rack_spread_of(SpreadTasks(rack))
