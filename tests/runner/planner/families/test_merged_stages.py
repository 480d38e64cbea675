import pytest

from wanbed.runner.experiment.compute_spec import ComputeSpec
from wanbed.runner.planner.families.merged_stages import merged_stages

COMPUTE = ComputeSpec.model_validate(
    {"forward": "5ms", "backward": ["1ms", "2ms", "3ms", "4ms"], "activation": ["1KB", "2KB", "3KB"], "gradient": "1MB"}
)


def test_costs_of_merged_stages_add_up() -> None:
    halves = merged_stages(COMPUTE, 4, 2)
    assert halves.forward == (10_000_000, 10_000_000)
    assert halves.backward == (3_000_000, 7_000_000)
    assert halves.gradient == (2_000_000, 2_000_000)
    assert halves.activation == (2000,)
    whole = merged_stages(COMPUTE, 4, 1)
    assert (whole.forward, whole.backward, whole.activation) == ((20_000_000,), (10_000_000,), ())


def test_what_is_not_written_stays_so() -> None:
    halves = merged_stages(COMPUTE, 4, 2)
    assert halves.backward_weight is None
    assert halves.optimizer == (0, 0)
    profiled = ComputeSpec.model_validate({"profile": "a100"})
    assert merged_stages(profiled, 4, 1) == profiled


def test_as_many_stages_change_nothing() -> None:
    assert merged_stages(COMPUTE, 4, 4) == COMPUTE


def test_stages_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^3 stages cannot merge 4 evenly$"):
        merged_stages(COMPUTE, 4, 3)
