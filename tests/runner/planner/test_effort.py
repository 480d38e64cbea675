import time

import pytest

from tests.support.clock import Clock
from wanbed.ground.errors import InputError
from wanbed.ground.own_code import PROCESSOR, EndlessCallError, time_limit
from wanbed.runner.planner.effort import Effort, LimitReachedError, Limits, Prices
from wanbed.runner.planner.search_space import Candidate, Price
from wanbed.runner.simulator.training import PULSE_INSTANTS


def candidate(cells: int) -> Candidate:
    return Candidate(cells, 1, (("a", 1),))


def by_cells(candidate: Candidate) -> Price:
    return Price(1.0, float(candidate.dp_cells), 0.5, 0)


def test_a_candidate_is_priced_once() -> None:
    asked = []

    def pricing(candidate: Candidate) -> Price:
        asked.append(candidate)
        return by_cells(candidate)

    prices = Prices(pricing)
    for each in (candidate(1), candidate(2), candidate(1)):
        prices(each)
    assert asked == [candidate(1), candidate(2)]
    assert (len(prices), prices.best.candidate) == (2, candidate(2))


def test_a_time_limit_holds_in_the_middle_of_a_simulation() -> None:
    clock = Clock()
    effort = Effort(Limits(time_s=60.0), clock=clock)

    def slow(_: Candidate) -> Price:
        while True:
            clock.now_s += 25.0
            effort.pulse(0.1)

    with pytest.raises(LimitReachedError, match=r"^at the limit of 60s of wall-clock time, after 0 simulations$"):
        Prices(slow, effort)(candidate(1))
    assert clock.now_s == 75.0


def test_the_first_candidate_may_have_a_longer_limit() -> None:
    clock = Clock()
    prices = Prices(by_cells, Effort(Limits(time_s=60.0, first_s=300.0), clock=clock))
    clock.now_s = 200.0
    prices(candidate(1))
    with pytest.raises(LimitReachedError, match=r"^at the limit of 60s of wall-clock time, after 1 simulation$"):
        prices(candidate(2))
    late = Prices(by_cells, Effort(Limits(time_s=60.0, first_s=300.0), clock=clock))
    clock.now_s += 300.0
    with pytest.raises(LimitReachedError, match=r"^at the limit of 300s of wall-clock time, after 0 simulations$"):
        late(candidate(1))


def test_a_limit_of_simulations_does_not_count_what_is_known_already() -> None:
    prices = Prices(by_cells, Effort(Limits(simulations=1)))
    assert prices(candidate(1)) == prices(candidate(1))
    with pytest.raises(LimitReachedError, match=r"^after 1 simulation$"):
        prices(candidate(2))


def test_a_limit_of_instants_leaves_one_candidate_and_does_not_read_the_clock() -> None:
    clock = Clock()
    effort = Effort(Limits(instants=2 * PULSE_INSTANTS), clock=clock)

    def pricing(candidate: Candidate) -> Price:
        for _ in range(3):
            clock.now_s += 1e9
            effort.pulse(0.5)
        return by_cells(candidate)

    prices = Prices(pricing, effort)
    prices(candidate(1))
    with pytest.raises(LimitReachedError, match=r"^at the limit of 2,000 simulated instants, after 1 sim"):
        prices(candidate(2))


def test_what_the_search_has_done_is_reported_as_it_gets_on() -> None:
    reported: list[tuple[int, float | None, float | None]] = []

    def report(effort: Effort) -> None:
        best = None if effort.best is None else effort.best.price.tokens_per_s
        reported.append((effort.priced, effort.simulated, best))

    effort = Effort(report=report)

    def pricing(candidate: Candidate) -> Price:
        effort.pulse(0.75)
        return by_cells(candidate)

    prices = Prices(pricing, effort)
    for cells in (3, 2):
        prices(candidate(cells))
    effort.check()
    assert reported == [(0, 0.0, None), (0, 0.75, None), (1, 0.0, 3.0), (1, 0.75, 3.0), (2, None, 3.0)]


def test_a_time_limit_ends_a_pricing_that_checks_nothing() -> None:
    def endless(_: Candidate) -> Price:
        try:
            while True:
                pass
        except EndlessCallError as fault:
            raise InputError("variants.0.schedule: it has not returned") from fault

    prices = Prices(endless, Effort(Limits(time_s=0.05)))
    with pytest.raises(LimitReachedError, match=r"^at the limit of 50ms of wall-clock time, after 0 simulations$"):
        prices(candidate(1))


def test_a_limit_of_processor_time_leaves_out_the_time_for_which_the_process_waits() -> None:
    def waiting_then_endless(_: Candidate) -> Price:
        time.sleep(0.3)
        waited.append(True)
        while True:
            pass

    waited: list[bool] = []
    prices = Prices(waiting_then_endless, Effort(Limits(time_s=0.05, of=PROCESSOR)))
    with pytest.raises(LimitReachedError, match=r"^at the limit of 50ms of processor time, after 0 simulations$"):
        prices(candidate(1))
    assert waited == [True]


def test_an_error_of_the_file_before_the_time_limit_stays_one() -> None:
    def refused(_: Candidate) -> Price:
        raise InputError("variants.0.schedule: no")

    with pytest.raises(InputError, match=r"^variants\.0\.schedule: no$"):
        Prices(refused, Effort(Limits(time_s=60.0)))(candidate(1))


def test_a_limit_of_a_call_inside_a_pricing_leaves_the_time_limit() -> None:
    def endless(_: Candidate) -> Price:
        with time_limit(60.0):
            pass
        with time_limit(60.0):
            while True:
                pass

    prices = Prices(endless, Effort(Limits(time_s=0.05)))
    with pytest.raises(LimitReachedError, match=r"^at the limit of 50ms of wall-clock time, after 0 simulations$"):
        prices(candidate(1))
