"""The simulator gives the published iteration times of pipeline schedules."""

import pytest

from tests.support.runner.emulated_run import constant
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.validation.golden import BACKWARD_NS, FORWARD_NS, GOLDEN_VALUES, MS, GoldenValue, golden_check


@pytest.mark.parametrize("value", GOLDEN_VALUES, ids=str)
def test_the_simulator_gives_every_golden_value_exactly(value: GoldenValue) -> None:
    check = golden_check(value, simulate_variant)
    assert check.simulated_ns == check.expected_ns == (value.iteration_ns,)


@pytest.mark.parametrize(
    ("stages", "microbatches", "latency_ms", "one_forward_one_backward_ms", "gpipe_ms"),
    [
        (2, 4, 50, 950, 850),
        (4, 8, 0, 1650, 1650),
        (4, 8, 10, 1810, 1710),
        (4, 8, 50, 2450, 1950),
        (4, 8, 150, 4050, 2550),
        (6, 8, 50, 2950, 2450),
    ],
)
def test_the_golden_values_are_the_published_ones(
    stages: int, microbatches: int, latency_ms: int, one_forward_one_backward_ms: int, gpipe_ms: int
) -> None:
    for schedule, golden_ms in (("1f1b", one_forward_one_backward_ms), ("gpipe", gpipe_ms)):
        assert GoldenValue(schedule, stages, microbatches, latency_ms * MS, golden_ms * MS) in GOLDEN_VALUES
    assert (FORWARD_NS, BACKWARD_NS) == (50 * MS, 100 * MS)


@pytest.mark.parametrize("value", [value for value in GOLDEN_VALUES if value.schedule == "gpipe"], ids=str)
def test_those_of_gpipe_follow_its_closed_form(value: GoldenValue) -> None:
    pipeline_ns = (value.microbatches + value.stages - 1) * (FORWARD_NS + BACKWARD_NS)
    assert value.iteration_ns == pipeline_ns + 2 * (value.stages - 1) * value.latency_ns


def test_another_iteration_time_is_not_exact() -> None:
    check = golden_check(GOLDEN_VALUES[0], constant(0.5))
    assert check.simulated_ns == (1000 * MS,), "its only iteration is the first"
    assert not check.exact
