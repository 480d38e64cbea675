import io

from wanbed.runner.cli.runs.plan_progress import PlanProgress, progress_line
from wanbed.runner.planner.candidate import Candidate, Price, Priced
from wanbed.runner.planner.effort import Effort, Limits
from wanbed.runner.runs.progress import PLAIN_INTERVAL_S


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_the_line_has_time_candidates_the_running_simulation_and_the_best_so_far() -> None:
    clock = Clock()
    effort = Effort(Limits(simulations=10, time_s=300.0), clock=clock)
    effort.candidates = 128
    effort.before_simulation()
    effort.pulse(0.406)
    assert progress_line(effort) == "0:00 of 5:00; 0 of 128 candidates simulated, at most 10; the next is at 41 %"
    effort.after_simulation(Priced(Candidate(4, 2, (("east", 2), ("west", 1))), Price(12.5, 1000.0, 0.5, 0)))
    clock.now_s = 61.0
    assert progress_line(effort).replace("\xa0", " ") == (
        "1:01 of 5:00; 1 of 128 candidates simulated, at most 10; "
        "best so far: 12.5 s an iteration on 24 GPUs in east and west"
    )


def test_a_number_of_candidates_that_is_not_known_is_not_claimed() -> None:
    effort = Effort(clock=Clock())
    effort.examined = 1200
    assert progress_line(effort) == "0:00; 0 candidates simulated; 1,200 partial placements examined"


def test_without_a_terminal_there_is_a_line_every_few_seconds() -> None:
    clock, stream = Clock(), io.StringIO()
    effort = Effort(clock=clock)
    with PlanProgress(stream=stream, clock=clock) as progress:
        progress.report(effort)
        assert stream.getvalue() == ""
        for _ in range(3):
            clock.now_s += PLAIN_INTERVAL_S / 2
            progress.report(effort)
    assert stream.getvalue() == "wanbed: 0:05; 0 candidates simulated\n"
