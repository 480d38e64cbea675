"""The test of the hostile GPU: it notices what a forgotten wait does."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.support.workloads.hostile_gpu.gpu import HostileGpu
from tests.support.workloads.hostile_gpu.on_hostile_gpu import ORDERS, on_hostile_gpu
from tests.support.workloads.one_thread import one_thread
from tests.workloads.compute.hostile.planted_faults import (
    COMPUTE,
    COPIES,
    DEVICE,
    FAULTS,
    GROUPS,
    PREFILL,
    STAGING,
    TIMER,
    Fault,
    planted,
)
from tests.workloads.compute.hostile.programs import WORKS, prefill, staging, swapping, training

Program = Callable[[HostileGpu | None], object]

SEEDS = range(3)


def trains(overlaps: bool, index: int) -> Program:
    def train(gpu: HostileGpu | None) -> object:
        found = training(WORKS[index], gpu, overlaps=overlaps)
        return found.losses, {name: part.tobytes() for name, part in found.gradients.items()}

    return train


def stages(seed: int) -> Program:
    return lambda gpu: staging(gpu, seed)


STAGES = [stages(seed) for seed in SEEDS]
TRAINS = [trains(overlaps, index) for overlaps in (True, False) for index in range(len(WORKS))]
SWAPS: list[Program] = [lambda gpu: swapping(gpu, (1, 2, 1, 1, 2))]
PROGRAMS: dict[str, list[Program]] = {
    STAGING: [*STAGES, *TRAINS],
    TIMER: TRAINS,
    COMPUTE: TRAINS,
    DEVICE: [lambda gpu: prefill()],
    PREFILL: [lambda gpu: prefill()],
    COPIES: SWAPS,
    GROUPS: SWAPS,
}
"""What runs the code of each module."""


_one_thread = pytest.fixture(autouse=True)(one_thread)


@cache
def expected(program: Program) -> Any:
    return program(None)


def noticed(module: str) -> str | None:
    """Return the order in which a program fails or has other results than on the CPU, None if all are as there."""
    for order, seed in ORDERS:
        for program in PROGRAMS[module]:
            with on_hostile_gpu(order, seed) as gpu:
                try:
                    found = program(gpu)
                except (AssertionError, RuntimeError, IndexError, OverflowError) as failure:
                    return f"{order.value} {seed}: {failure!r}"
            if found != expected(program):
                return f"{order.value} {seed}: other results"
    return None


WITNESSES = 6
"""How many faults a landing plants. That one does no harm takes all programs in all orders to find."""


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(each, id=each.name, marks=[pytest.mark.soak] if each.harmless or number >= WITNESSES else [])
        for number, each in enumerate(FAULTS)
    ],
)
def test_a_fault_is_noticed_unless_it_does_no_harm(fault: Fault) -> None:
    for program in PROGRAMS[fault.module]:
        expected(program)
    with planted(fault):
        notice = noticed(fault.module)
    assert (notice is None) == (fault.harmless is not None), notice


def test_a_fault_whose_text_has_gone_fails() -> None:
    with (
        pytest.raises(AssertionError, match=r"0 times in staging\.py"),
        planted(Fault("rotten", STAGING, "no such", "")),
    ):
        pass
