"""Receives that block: the schedules that have none, and those that deadlock in a rendezvous."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runner.small_experiment import sweep_point
from wanbed.ground.errors import InputError
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.receive_check import check_rendezvous
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.registry import schedule_by_name

RENDEZVOUS = TransportSpec(receive="blocks", overlap=False)


def document(schedule: str, transport: dict[str, Any], **variant: Any) -> dict[str, Any]:
    return {
        "topology": {"datacenters": [{"name": name, "hosts": 2} for name in ("a", "b")], "wan": {"latency": "5ms"}},
        "compute": {"forward": "10ms", "activation": "1MB", "gradient": "1MB"},
        "training": {"stages": 4, "microbatches": 4},
        "variants": [{"name": "v", "schedule": schedule, "transport": transport, **variant}],
    }


BLOCKS: dict[str, Any] = {"receive": "blocks"}
BOTH: dict[str, Any] = {"receive": "blocks", "overlap": False}
CIRCLE = (
    "it deadlocks where sends and receives block: stage 2 sends the activation of microbatch 1 to stage 3, stage 3 "
    "sends the gradient of microbatch 0 to stage 2: give receive: buffers, leave overlap out, or give gpipe"
)


@pytest.mark.parametrize(
    ("described", "refusal"),
    [
        (document("varuna", BLOCKS), "variants.0.transport.receive: varuna chooses among the messages that have come"),
        (document("atlas", BLOCKS), "variants.0.transport.receive: atlas plans for messages that are sent as soon as"),
        (document("zb-2p", BLOCKS), "variants.0.transport.receive: zb-2p plans for messages that are sent as soon as"),
        (
            document("gpipe", BLOCKS) | {"prefill": {"rate": "1/s", "trace": "poisson", "slo": "1s"}},
            "variants.0.prefill: a GPU that receives is not idle, and no bubble is left to fill: give receive: buffers",
        ),
        (document("1f1b", BOTH), f"variants.0.schedule: {CIRCLE}"),
        (document("zb-h1", BOTH), f"variants.0.schedule: {CIRCLE}"),
        (document("eager-1f1b", BOTH), f"variants.0.schedule: {CIRCLE}"),
        (
            document("interleaved-1f1b", BOTH, training={"virtual_stages": 2}),
            "variants.0.schedule: it deadlocks where sends and receives block: stage 3 sends the activation of "
            "microbatch 0 to stage 0, stage 0 sends the activation of microbatch 3 to stage 1, stage 1 sends the ",
        ),
    ],
)
def test_what_does_not_go_with_receives_that_block_is_refused(described: dict[str, Any], refusal: str) -> None:
    with pytest.raises(InputError) as refused:
        sweep_point(described)
    assert str(refused.value).partition(": ")[2].startswith(refusal) or str(refused.value).startswith(refusal)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "described",
    [
        document("gpipe", BOTH),
        document("1f1b", BOTH, options={"warmup_depth": 1}),
        document("1f1b", BLOCKS),
        document("zb-v", BLOCKS, training={"virtual_stages": 2}),
        document("1f1b", BLOCKS)
        | {"prefill": {"rate": "1/s", "trace": "poisson", "slo": "1s"}}
        | {"variants": [{"name": "v", "schedule": "1f1b", "transport": BLOCKS, "prefill": "none"}]},
    ],
)
def test_what_goes_is_taken(described: dict[str, Any]) -> None:
    assert sweep_point(described).variants[0].receives_block


@given(st.integers(1, 6), st.integers(1, 9))
@settings(deadline=None)
def test_a_schedule_with_forwards_before_all_backwards_never_deadlocks(stages: int, microbatches: int) -> None:
    check_rendezvous(schedule_by_name("gpipe", PipelineShape(stages, microbatches)), RENDEZVOUS)


@given(st.sampled_from(["1f1b", "eager-1f1b", "zb-h1"]), st.integers(2, 6), st.integers(2, 9))
@settings(deadline=None)
def test_a_stage_that_sends_ahead_of_a_gradient_deadlocks(name: str, stages: int, microbatches: int) -> None:
    with pytest.raises(ValueError, match=r"deadlocks where sends and receives block: stage \d sends the "):
        check_rendezvous(schedule_by_name(name, PipelineShape(stages, microbatches)), RENDEZVOUS)
    for transport in (TransportSpec(receive="blocks"), TransportSpec(overlap=False)):
        check_rendezvous(schedule_by_name(name, PipelineShape(stages, microbatches)), transport)
