"""Say how good a plan is by its goal: its costs, what bounds leave possible, and how much worse another one is."""

from typing import Any

from wanbed.results.text import percent_text, three_digits, usd_text
from wanbed.runner.planner.goal import PER_HOUR, Goal, Objective
from wanbed.runner.planner.planning import Plan, PlanningTask
from wanbed.runner.planner.search_space import SECONDS_PER_HOUR, Price


def cost_text(price: Price, counted: str) -> str | None:
    """Return the costs of a candidate as text, None without prices."""
    if price.cost is None:
        return None
    gpus, egress = price.cost.gpus_usd_per_h, price.cost.egress_usd * SECONDS_PER_HOUR / price.iteration_time_s
    return (
        f"{usd_text(price.figures.usd_per_million)} a million {counted}; {usd_text(gpus + egress)} an hour: "
        f"{usd_text(gpus)} for GPUs, {usd_text(egress)} for bytes sent over the WAN"
    )


def usd_heading(counted: str) -> str:
    """Return the heading of the cost of a million tokens."""
    return f"USD/M\n{counted}"


def cost_record(price: Price, counted: str) -> dict[str, Any]:
    """Return the costs of a candidate in plain JSON types, empty without prices."""
    if price.cost is None:
        return {}
    return {
        "gpus_usd_per_h": price.cost.gpus_usd_per_h,
        "egress_usd_per_iteration": price.cost.egress_usd,
        "usd_per_iteration": price.cost.usd(price.iteration_time_s),
        "usd_per_h": price.figures.usd_per_h,
        f"usd_per_million_{counted}": price.figures.usd_per_million,
    }


def limit_text(found: Plan, counted: str) -> str | None:
    """Return that a plan costs more than was asked for, None if it does not."""
    limit = found.goal.limit
    if limit is None or found.within_limit:
        return None
    cost = cost_of_unit(found.goal, limit.of(found.chosen.price.figures), counted)
    if found.proven:
        return f"no plan costs {limit.text} at most: this is the cheapest, {cost}"
    return f"no plan was found that costs {limit.text} at most: this is the cheapest found, {cost}"


def cost_of_unit(goal: Goal, usd: float, counted: str) -> str:
    """Return a cost in the unit of the goal's limit as text."""
    by_hour = goal.limit is not None and goal.limit.unit == PER_HOUR
    return f"{usd_text(usd)} {'an hour' if by_hour else f'a million {counted}'}"


def gap_text(found: Plan, counted: str) -> dict[str, str]:
    """Return what the bounds leave possible beyond the chosen candidate, by its heading; empty if that is proven."""
    if found.proven:
        return {}
    by = "by the bounds of what was not simulated"
    if found.at_most < 0:
        return {"no plan is below": f"{cost_of_unit(found.goal, -found.at_most, counted)}, {by}"}
    most = worth_text(found.goal, found.at_most, counted)
    if found.gap is None:
        return {"no plan exceeds": f"{most}, {by}; whether one is within the limit is not known"}
    if found.goal.objective is Objective.COST:
        less = 1 - found.chosen.worth / found.at_most
        return {"no plan is below": f"{most}, {percent_text(less)} less, {by}"}
    return {"no plan exceeds": f"{most}, {percent_text(found.gap)} more, {by}"}


def worth_text(goal: Goal, worth: float, counted: str) -> str:
    """Return a worth as the figure that it stands for: tokens a second, or a cost."""
    if worth < 0:
        return cost_of_unit(goal, -worth, counted)
    if goal.objective is Objective.TOKENS:
        return f"{three_digits(worth)} {counted} a second"
    return f"{usd_text(1e12 / worth)} a million {counted}"


def bound_text(goal: Goal, worth: float, counted: str) -> str:
    """Return a bound of the worth as text: the most tokens a second, or the least cost."""
    lowest = worth < 0 or goal.objective is Objective.COST
    return f"{worth_text(goal, worth, counted)} at {'least' if lowest else 'most'}"


def worth_record(goal: Goal, worth: float | None, counted: str) -> dict[str, float | None]:
    """Return a bound of the worth in plain JSON types, under the name of the figure that it stands for; null if none.

    A bound of plans beyond the limit, of which the cheapest is sought, is the least that they cost.
    """
    if worth is not None and worth < 0 and goal.limit is not None:
        unit = "usd_per_h" if goal.limit.unit == PER_HOUR else f"usd_per_million_{counted}"
        return {f"{unit}_at_least": -worth}
    if goal.objective is Objective.TOKENS:
        return {f"{counted}_per_s_at_most": worth}
    return {f"usd_per_million_{counted}_at_least": None if worth is None else 1e12 / worth}


def worse_text(task: PlanningTask, chosen: Price, other: Price) -> str:
    """Return how many fewer tokens a second another candidate gives, and how much more they cost, as a predicate."""
    fewer = f"gives {_ratio_text(other.tokens_per_s, chosen.tokens_per_s, 'fewer', 'more')} {task.counted} a second"
    if other.cost is None:
        return fewer
    each = task.counted.removesuffix("s")
    dearer = _ratio_text(other.figures.usd_per_million, chosen.figures.usd_per_million, "less", "more")
    beyond = "" if task.goal.allows(other.figures) else ", which is above --max-cost"
    return f"{fewer} and costs {dearer} a {each}{beyond}"


def _ratio_text(value: float, reference: float, less: str, more: str) -> str:
    if not reference or value == reference:
        return "as many" if less == "fewer" else "as much"
    return f"{percent_text(abs(1 - value / reference))} {less if value < reference else more}"


def better_text(found: Plan, counted: str) -> str:
    """Return what a better plan would do, as a predicate."""
    goal = found.goal
    if not found.within_limit:
        return "costs less"
    within = "" if goal.limit is None else " within --max-cost"
    if goal.objective is Objective.TOKENS:
        return f"gives more {counted} a second{within}"
    return f"costs less a {counted.removesuffix('s')}{within}"
