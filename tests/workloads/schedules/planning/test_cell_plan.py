import json

import pytest

from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts, CellPlan, options_for

BOUNDARY = BoundaryCosts(latency_ns=40, occupancy_ns=10, shared=True)
FORWARD, BACKWARD = Action(ActionKind.FORWARD, 0), Action(ActionKind.BACKWARD, 0)


def test_options_are_json_and_have_one_list_for_each_stage() -> None:
    plan = CellPlan((((FORWARD, BACKWARD), (FORWARD, BACKWARD)),), ((),), ((),), 1, 1)
    stage = [["forward", 0], ["backward", 0]]
    assert json.loads(json.dumps(options_for(plan, 0))) == {"orders": [stage, stage]}


def test_a_rank_gets_only_the_list_of_its_stage() -> None:
    plan = CellPlan((((FORWARD,), (BACKWARD,)),), ((),), ((),), 1, 1)
    assert options_for(plan, 0, stage=1) == {"orders": [None, [["backward", 0]]]}


@pytest.mark.parametrize("field", ["latency_ns", "occupancy_ns"])
def test_negative_boundary_costs_are_refused_by_field(field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: -1 is negative"):
        BoundaryCosts(**{"latency_ns": 0, "occupancy_ns": 0, "shared": False, field: -1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"pipelines": 0}, "pipelines: 0 is below 1"),
        ({"forward_ns": (1,)}, "forward_ns: 1 values for 2 stages"),
        ({"recompute_ns": (1, -1)}, "recompute_ns: -1 is negative"),
        ({"boundaries": ()}, "boundaries: 0 for 2 stages, give one less than stages"),
    ],
)
def test_invalid_cell_costs_are_refused_by_field(arguments: dict[str, object], line: str) -> None:
    cell = {
        "shape": PipelineShape(2, 4),
        "pipelines": 2,
        "forward_ns": (1, 1),
        "backward_ns": (2, 2),
        "recompute_ns": (1, 1),
        "boundaries": (BOUNDARY,),
    }
    with pytest.raises(ValueError, match=f"^{line}"):
        CellCosts(**{**cell, **arguments})  # type: ignore[arg-type]
