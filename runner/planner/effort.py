"""Limit the effort of a search, and report how far it has come.

A search may do no more than a number of simulations, a time of the processor or of the wall clock, or a number of
simulated instants. Only the time depends on the machine. A limit is checked before each simulation and in the middle of
each, so that it holds however long one simulation takes. That of time also holds while candidates are listed and
resolved, which can take long too.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from wanbed.ground.errors import InputError
from wanbed.ground.own_code import WALL_CLOCK, EndlessCallError, TimeKind, time_limit
from wanbed.ground.units import format_duration, parse_duration_ns
from wanbed.results.text import count_text
from wanbed.runner.planner.goal import FASTEST, Goal
from wanbed.runner.planner.search_space import Candidate, Priced, Pricing
from wanbed.runner.simulator.training import PULSE_INSTANTS

_TIMER_SLACK_S = 0.01


class LimitReachedError(Exception):
    """A search has reached a limit. The text says which one."""


@dataclass(frozen=True)
class Limits:
    """The limits of a search, None where there is none.

    The limit of time is ``first_s``, if that is more, until the first candidate is priced; ``of`` is the kind of time.
    The limit of ``instants``, the moments of simulated time at which anything happens, is for a search that must end
    alike on every machine. It holds from the second candidate on. Either way the search has an answer.
    """

    simulations: int | None = None
    time_s: float | None = None
    instants: int | None = None
    first_s: float = 0.0
    of: TimeKind = WALL_CLOCK


NO_LIMITS = Limits()


def seconds_limit(text: str) -> float:
    """Return a limit of time written like ``60s``. Raise InputError, naming the option, for anything else."""
    try:
        return parse_duration_ns(text) / 1e9
    except ValueError as refusal:
        raise InputError(f"--time-limit: {refusal}") from None


class Effort:
    """The effort of one search: what it has priced, for how long, and how far the simulation is that runs now.

    ``candidates`` is the number of candidates to choose from, None if it is not known. ``examined`` counts the partial
    placements that were examined by their bounds. ``simulated`` is the share of the running simulation that is done,
    None between simulations. ``report`` is called whenever something has changed, about ten times a second while a
    candidate is simulated. ``clock`` returns seconds (default: that of the limit).
    """

    def __init__(
        self,
        limits: Limits = NO_LIMITS,
        report: Callable[["Effort"], None] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.limits = limits
        self.candidates: int | None = None
        self.priced = 0
        self.best: Priced | None = None
        self.simulated: float | None = None
        self.examined = 0
        self._instants = 0
        self._report = report
        self._clock = clock or limits.of.clock
        self._started_s = self._clock()

    @property
    def elapsed_s(self) -> float:
        """The seconds since the search began."""
        return self._clock() - self._started_s

    def check_time(self) -> None:
        """Report, and raise LimitReachedError if the limit of time is reached."""
        if self._report is not None:
            self._report(self)
        limit_s = self._limit_s
        if limit_s is not None and self.elapsed_s >= limit_s:
            limit = format_duration(round(limit_s * 1e9))
            raise LimitReachedError(f"at the limit of {limit} of {self.limits.of.name}, {self.done_text}")

    @property
    def _limit_s(self) -> float | None:
        limits = self.limits
        return limits.time_s if limits.time_s is None or self.priced else max(limits.time_s, limits.first_s)

    def check(self) -> None:
        """Report, and raise LimitReachedError if a limit of time or of instants is reached."""
        self.check_time()
        limits = self.limits
        if limits.instants is not None and self.priced and self._instants >= limits.instants:
            raise LimitReachedError(f"at the limit of {limits.instants:,} simulated instants, {self.done_text}")

    def pulse(self, simulated: float) -> None:
        """Handle that the running simulation has handled ``PULSE_INSTANTS`` more instants: check the limits."""
        self.simulated = simulated
        self._instants += PULSE_INSTANTS
        self.check()

    def before_simulation(self) -> None:
        """Check all limits before a candidate is simulated."""
        most = self.limits.simulations
        if most is not None and self.priced >= most:
            raise LimitReachedError(self.done_text)
        self.simulated = 0.0
        self.check()

    def after_simulation(self, priced: Priced) -> None:
        """Count a candidate that was priced."""
        self.simulated = None
        self.priced += 1
        if self.best is None or priced.rank < self.best.rank:
            self.best = priced

    @contextmanager
    def time_limited(self) -> Iterator[None]:
        """Raise LimitReachedError in the block at the limit of time, also where nothing checks it."""
        if self._limit_s is None:
            yield
            return
        try:
            with time_limit(max(self._limit_s - self.elapsed_s, 0.0) + _TIMER_SLACK_S, self.limits.of):
                yield
        except (EndlessCallError, InputError):
            # The check of a schedule reports a call that was ended as an error in the file.
            self.check_time()
            raise

    @property
    def done_text(self) -> str:
        """The number of simulated candidates, as the end of a sentence."""
        return f"after {count_text(self.priced, 'simulation')}"


class Prices:
    """A cache of prices, in the order in which candidates were priced. Its ``len`` is the number of candidates.

    ``expect`` gets candidates that are likely to be priced next, most likely first. What they are worth is by ``goal``.
    """

    def __init__(
        self,
        pricing: Pricing,
        effort: Effort | None = None,
        expect: Callable[[Iterator[Candidate]], None] = lambda _: None,
        goal: Goal = FASTEST,
    ) -> None:
        self._pricing = pricing
        self._expect = expect
        self._goal = goal
        self._known: dict[Candidate, Priced] = {}
        self.effort = effort or Effort()

    def __call__(self, candidate: Candidate) -> Priced:
        """Return the candidate with its price, computed on the first call. Raises LimitReachedError."""
        if candidate not in self._known:
            self.effort.before_simulation()
            with self.effort.time_limited():
                price = self._pricing(candidate)
            priced = Priced(candidate, price, self._goal.worth(price.figures))
            self._known[candidate] = priced
            self.effort.after_simulation(priced)
        return self._known[candidate]

    def expect(self, candidates: Iterator[Candidate]) -> None:
        """Say which candidates are likely to be priced next. Whether any is taken from the iterator is not known."""
        self._expect(candidate for candidate in candidates if candidate not in self._known)

    def may_be_best(self, ceiling: float) -> bool:
        """Return whether a candidate with this ceiling may be better than the best so far."""
        return self.effort.best is None or ceiling > self.effort.best.worth

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, candidate: Candidate) -> bool:
        return candidate in self._known

    @property
    def all(self) -> tuple[Priced, ...]:
        """All candidates priced so far."""
        return tuple(self._known.values())

    @property
    def best(self) -> Priced:
        """The best candidate priced so far. Raises ValueError if there is none."""
        if self.effort.best is None:
            raise ValueError("no candidate was priced")
        return self.effort.best
