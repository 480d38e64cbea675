import pytest

from wanbed.workloads.schedules.pipeline_shape import PipelineShape


def test_one_value_holds_for_every_stage() -> None:
    shape = PipelineShape(3, 8, recompute=True, memory_bound=4)
    assert [shape.recomputes(stage) for stage in range(3)] == [True] * 3
    assert [shape.most_in_flight(stage) for stage in range(3)] == [4] * 3


def test_stages_may_differ() -> None:
    shape = PipelineShape(2, 8, recompute=(True, False), memory_bound=(9, 1))
    assert [shape.recomputes(stage) for stage in range(2)] == [True, False]
    assert [shape.most_in_flight(stage) for stage in range(2)] == [8, 1]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"stages": 0}, "stages"),
        ({"microbatches": 0}, "microbatches"),
        ({"recompute": (True,)}, "recompute"),
        ({"memory_bound": (1, 2, 3)}, "memory_bound"),
        ({"memory_bound": 0}, "memory_bound"),
        ({"memory_bound": (1, 0)}, "memory_bound"),
    ],
)
def test_an_invalid_shape_is_refused_by_field(arguments: dict[str, object], field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        PipelineShape(**{"stages": 2, "microbatches": 4, **arguments})  # type: ignore[arg-type]
