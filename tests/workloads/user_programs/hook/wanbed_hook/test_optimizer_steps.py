"""Against torch's own optimizers, in this process."""

from collections.abc import Callable, Iterator

import pytest
import torch

from wanbed.workloads.user_programs.hook.wanbed_hook.optimizer_steps import OptimizerSteps, Step

Ended = list[tuple[Step, bool]]


@pytest.fixture
def ended() -> Iterator[Ended]:
    seen: Ended = []
    steps = OptimizerSteps(lambda step, is_first: seen.append((step, is_first)))
    steps.follow(torch)
    yield seen
    steps.leave()
    count = len(seen)
    optimizer().step()
    assert len(seen) == count


def optimizer(kind: Callable[..., torch.optim.Optimizer] = torch.optim.SGD) -> torch.optim.Optimizer:
    return kind([torch.nn.Parameter(torch.ones(2))], lr=0.1)


class Failing(torch.optim.SGD):
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        raise RuntimeError("no step")


class Wrapping(torch.optim.SGD):
    inner: torch.optim.Optimizer

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        self.inner.step()


def test_the_first_that_steps_stays_the_first(ended: Ended) -> None:
    first, second = optimizer(), optimizer(torch.optim.Adam)
    for each in (first, second, second, first):
        each.step()
    assert [is_first for _, is_first in ended] == [True, False, False, True]
    assert all(step.start_ns < step.end_ns for step, _ in ended)


def test_another_takes_the_place_of_one_that_is_gone(ended: Ended) -> None:
    optimizer().step()
    second = optimizer()
    second.step()
    second.step()
    assert [is_first for _, is_first in ended] == [True, True, True]


def test_a_step_within_a_step_is_part_of_it(ended: Ended) -> None:
    outer = optimizer(Wrapping)
    assert isinstance(outer, Wrapping)
    outer.inner = optimizer()
    outer.step()
    outer.step()
    assert [is_first for _, is_first in ended] == [True, True]


def test_a_step_that_raised_leaves_nothing_behind(ended: Ended) -> None:
    failing, other = optimizer(Failing), optimizer()
    with pytest.raises(RuntimeError, match="no step"):
        failing.step()
    other.step()
    assert len(ended) == 1
