from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refused import refused
from wanbed.runner.planner.goal import FASTEST, CostLimit, Figures, Goal, Objective
from wanbed.testbed.network.price_list import PriceList

FREE = PriceList((("a", 0.0),), ())
PRICED = PriceList((("a", 2.0),), ())
HOURLY = CostLimit(40.0, "USD/h")


def test_the_worth_is_the_figure_that_is_asked_for() -> None:
    figures = Figures(50_000.0, 30.0, 0.25)
    assert FASTEST.worth(figures) == 50_000.0
    assert Goal(Objective.COST).worth(figures) == 4e12
    assert Goal(Objective.COST).worth(Figures(1.0, 0.0, 0.0)) == inf


def test_beyond_the_limit_the_cheapest_is_the_best() -> None:
    goal = Goal(limit=HOURLY)
    dear, dearer = (goal.worth(Figures(1e6, usd_per_h, 9.0)) for usd_per_h in (41.0, 50.0))
    assert dearer < dear < 0 < goal.worth(Figures(1.0, 40.0, 9.0))
    by_token = Goal(limit=CostLimit(0.5, "USD/Mtoken"))
    assert (by_token.worth(Figures(7.0, 1e6, 0.5)), by_token.worth(Figures(7.0, 0.0, 0.75))) == (7.0, -0.75)


@given(
    st.sampled_from([FASTEST, Goal(Objective.COST), Goal(limit=HOURLY), Goal(Objective.COST, HOURLY)]),
    st.tuples(*[st.floats(0.5, 100.0)] * 3),
    st.tuples(*[st.floats(0.0, 50.0)] * 3),
)
def test_more_tokens_and_lower_costs_are_never_worth_less(
    goal: Goal, figures: tuple[float, float, float], by: tuple[float, float, float]
) -> None:
    (per_s, per_h, per_million), (more, less, lesser) = figures, by
    better = Figures(per_s + more, max(per_h - less, 0.0), max(per_million - lesser, 0.0))
    assert goal.worth(better) >= goal.worth(Figures(per_s, per_h, per_million))


def test_options_of_the_command_are_read() -> None:
    assert Goal.of("tokens") == FASTEST
    assert Goal.of("cost", "40USD/h") == Goal(Objective.COST, HOURLY)
    assert Goal.of("tokens", " 0.50 USD/Mtoken ") == Goal(limit=CostLimit(0.5, "USD/Mtoken"))
    assert CostLimit(0.5, "USD/Mtoken").text == "0.5USD/Mtoken"


@pytest.mark.parametrize(
    ("objective", "max_cost", "text"),
    [
        ("speed", None, "--objective speed: there are tokens and cost"),
        ("tokens", "40", "--max-cost: '40' is not a cost: write it like 40USD/h or 0.50USD/Mtoken"),
        (
            "cost",
            "4USD/s",
            "--max-cost: '4USD/s' has the unit 'USD/s', not one of a cost (USD/h, USD/Mtoken): write it like 40USD/h "
            "or 0.50USD/Mtoken",
        ),
    ],
)
def test_a_bad_option_is_one_line(objective: str, max_cost: str | None, text: str) -> None:
    assert refused(lambda: Goal.of(objective, max_cost)) == text


@pytest.mark.parametrize(
    ("goal", "prices", "counts_tokens", "text"),
    [
        (
            Goal(Objective.COST),
            None,
            True,
            "--objective cost: the file has no prices: give every datacenter a gpu_price ",
        ),
        (Goal(limit=HOURLY), None, True, "--max-cost: the file has no prices: give every datacenter a gpu_price like "),
        (
            Goal(Objective.COST),
            FREE,
            True,
            "--objective cost: all prices of the file are 0, so that all plans cost the ",
        ),
        (
            Goal(limit=CostLimit(0.5, "USD/Mtoken")),
            PRICED,
            False,
            "--max-cost 0.5USD/Mtoken: without a model no tokens are counted: give a model, or a cost like 40USD/h",
        ),
    ],
)
def test_a_goal_about_costs_that_are_not_known_is_refused(
    goal: Goal, prices: PriceList | None, counts_tokens: bool, text: str
) -> None:
    assert refused(lambda: goal.check(prices, counts_tokens=counts_tokens)).startswith(text)


def test_a_goal_whose_costs_are_known_is_accepted() -> None:
    FASTEST.check(None, counts_tokens=False)
    Goal(Objective.COST, HOURLY).check(PRICED, counts_tokens=False)
    Goal(limit=CostLimit(0.5, "USD/Mtoken")).check(FREE, counts_tokens=True)
