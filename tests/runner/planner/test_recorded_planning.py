"""Searches find what they found: who changes that on purpose records it anew, see ``tests/support/recorded.py``."""

from pathlib import Path

from tests.support.recorded import check_recorded
from tests.support.runner.planner_instances import pricing_of, random_task
from wanbed.runner.planner.planning import plan
from wanbed.runner.planner.search_space import Priced


def text_of(priced: Priced) -> str:
    candidate = priced.candidate
    runs = " ".join(f"{name}:{count}" for name, count in candidate.runs)
    return f"{candidate.dp_cells} cells {runs} {priced.price.tokens_per_s:.6g} tokens/s"


def test_searches_of_drawn_tasks_find_what_they_found() -> None:
    found = {}
    for number in range(8):
        task = random_task(number, most_gpus=5)
        for search in ("greedy", "better", "exhaustive"):
            planned = plan(task, search, runners_up=2, pricing=pricing_of(task))
            others = "; ".join(map(text_of, planned.runners_up))
            found[f"task {number} {search}"] = (
                f"{text_of(planned.chosen)}, greedy {text_of(planned.greedy)}, others [{others}], "
                f"at most {planned.at_most:.6g}, unused {dict(planned.unused)}, {planned.simulations} simulations"
            )
    check_recorded(Path(__file__).with_name("recorded_planning.txt"), found)
