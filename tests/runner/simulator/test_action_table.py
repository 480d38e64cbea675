"""Training that walks through a table does what it does if it asks the schedule, to the byte."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.simulator.simulation_of import simulation_of
from wanbed.runner.simulator import training
from wanbed.runner.simulator.action_table import ActionTable, action_table
from wanbed.runner.simulator.simulation import Simulation
from wanbed.workloads.schedules.action import Action
from wanbed.workloads.schedules.fixed_order import FixedOrder
from wanbed.workloads.schedules.gpipe import GPipe
from wanbed.workloads.schedules.one_forward_one_backward import OneForwardOneBackward
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.schedule import Schedule
from wanbed.workloads.schedules.varuna import Varuna
from wanbed.workloads.schedules.virtual.interleaved import InterleavedOneForwardOneBackward
from wanbed.workloads.schedules.virtual.zero_bubble_v import ZeroBubbleV
from wanbed.workloads.schedules.zero_bubble import ZeroBubble


def table_of(kind: type[Schedule], shape: PipelineShape, options: Mapping[str, Any] | None = None) -> ActionTable:
    table = action_table(kind, shape, options or {})
    assert table is not None
    return table


def experiment(schedule: str, *, virtual: int = 1, **transport: Any) -> dict[str, Any]:
    """Two stages of two pipelines over the WAN, whose times vary where that is known of all parts."""
    return {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 4}, {"name": "west", "hosts": 4}],
            "wan": {"latency": "7ms", "node_pair_rate": "1Gbit"},
        },
        "model": {"hidden": 512, "context": 512},
        "compute": {
            "forward": "3ms",
            "backward": "6ms",
            "recompute": "3ms",
            "optimizer": "1ms",
            "gradient": "1MiB",
            **({} if virtual > 1 else {"jitter": {"distribution": "uniform", "spread": "30%"}}),
        },
        "training": {
            "stages": 2,
            "pipelines": 2,
            "microbatches": 4,
            "iterations": 3,
            "warmup": 0,
            **({"virtual_stages": virtual} if virtual > 1 else {}),
        },
        "engine": "simulate",
        "variants": [{"name": "any", "schedule": schedule, "transport": transport}],
    }


def same(one: Simulation, other: Simulation) -> None:
    for name, column in vars(one.spans).items():
        np.testing.assert_array_equal(column, getattr(other.spans, name))
    for here, there in zip(one.traffic, other.traffic, strict=True):
        np.testing.assert_array_equal(here.counts(), there.counts())


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(experiment("gpipe"), id="gpipe"),
        pytest.param(experiment("1f1b"), id="1f1b"),
        pytest.param(experiment("1f1b", overlap=False), id="sends block"),
        pytest.param(experiment("1f1b", all_reduce_overlap=True, bucket="256KiB"), id="buckets"),
        pytest.param(experiment("zb-h1", all_reduce_overlap=True, bucket="256KiB"), id="a split backward in buckets"),
        pytest.param(experiment("interleaved-1f1b", virtual=2), id="virtual stages"),
        pytest.param(experiment("zb-v", virtual=2), id="virtual stages that follow each other on one stage"),
        pytest.param(experiment("atlas", sharing="temporal", pipelines_per_cell=2), id="lists of each pipeline"),
    ],
)
def test_simulations_are_those_of_schedules_that_are_asked(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: list[ActionTable | None] = []

    def recorded(*arguments: Any) -> ActionTable | None:
        tables.append(action_table(*arguments))
        return tables[-1]

    monkeypatch.setattr(training, "action_table", recorded)
    walked = simulation_of(document, 3)
    assert tables
    assert None not in tables
    monkeypatch.setattr(training, "action_table", lambda *_: None)
    same(walked, simulation_of(document, 3))


@pytest.mark.parametrize(
    ("kind", "chunks"),
    [
        (GPipe, 1),
        (OneForwardOneBackward, 1),
        (ZeroBubble, 1),
        (InterleavedOneForwardOneBackward, 2),
        (ZeroBubbleV, 2),
    ],
)
@given(stages=st.integers(1, 4), groups=st.integers(1, 3), recompute=st.booleans())
def test_a_stage_that_has_been_replayed_is_where_the_table_is(
    kind: type[Schedule], chunks: int, stages: int, groups: int, recompute: bool
) -> None:
    """All events of a pipeline are told to one schedule; to another one, what the table says of each stage."""
    shape = PipelineShape(stages, stages * groups, recompute=recompute, virtual_stages=chunks)
    table, told = table_of(kind, shape), kind(shape)
    runs = [table.run(stage) for stage in range(stages)]
    moved = True
    while moved:
        moved = False
        for stage, run in enumerate(runs):
            step = run.step
            ready = step is not None and (step.needs < 0 or run.there[step.needs] == 1)
            action = told.next(stage)
            assert (action is not None) == ready
            if step is None or action is None:
                continue
            assert action == step.action
            assert told.completes_gradients(stage, action) == step.completes
            told.finished(stage, action)
            run.step, ships, moved = step.following, step.ships, True
            sent = told.sends(stage, action)
            assert (ships and (ships.to_stage, ships.message)) == sent
            if ships is not None and sent is not None:
                runs[ships.to_stage].there[ships.slot] = 1
                told.arrived(*sent)
            replayed = kind(shape)
            table.replay(replayed, stage, run)
            assert replayed.open_actions(stage) == told.open_actions(stage)
            assert replayed.in_flight(stage) == told.in_flight(stage)
    assert all(told.complete(stage) for stage in range(stages))
    assert all(run.step is None for run in runs)


class Mine(FixedOrder):
    def order(self, stage: int) -> list[Action]:
        return []


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        pytest.param(Varuna, PipelineShape(2, 2), id="it decides by events"),
        pytest.param(Mine, PipelineShape(2, 2), id="another package's"),
        pytest.param(GPipe, PipelineShape(2, 2, memory_bound=1), id="the schedule refuses the shape"),
    ],
)
def test_other_schedules_have_no_table(kind: type[Schedule], shape: PipelineShape) -> None:
    assert action_table(kind, shape, {}) is None


@pytest.mark.parametrize("change", [lambda order: order[::-1], lambda order: order[:-1], lambda order: order + order])
def test_a_list_that_cannot_be_followed_to_its_end_makes_no_table(
    change: Callable[[list[Action]], list[Action]], monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, order = PipelineShape(2, 2), GPipe.order
    assert action_table(GPipe, shape, {}) is not None
    monkeypatch.setattr(GPipe, "order", lambda self, stage: change(list(order(self, stage))))
    assert action_table(GPipe, shape, {}) is None


def test_pipelines_with_equal_lists_share_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(training, "action_table", lambda *asked: made.append(asked) or action_table(*asked))
    simulation_of(experiment("1f1b"), 3, symmetry=False)
    assert len(made) == 1
