from typing import Any

import pytest

from tests.support.runner.taken_values import taken, takes_from_to, words_of_refusal
from wanbed.runner.experiment.compute_spec import ComputeSpec, JitterSpec, SlowerSpec

TORCH = {"kind": "torch", "device": "cuda"}


def written(**fields: Any) -> dict[str, Any]:
    return ComputeSpec.model_validate(fields).model_dump(mode="json")


def test_times_that_nobody_gives_are_50_ms_forward_without_recompute_or_optimizer() -> None:
    spec = ComputeSpec()
    assert (spec.kind, spec.forward, spec.recompute, spec.optimizer) == ("replay", 50_000_000, 0, 0)
    assert (spec.backward, spec.backward_weight, spec.activation, spec.gradient) == (None, None, None, None)
    assert (spec.checkpointing, spec.times_profile, spec.device, spec.threads) == (None, None, None, None)


def test_a_profile_gives_the_times_and_recomputes_unless_told_otherwise() -> None:
    spec = ComputeSpec.model_validate({"profile": "a100"})
    assert (spec.forward, spec.recompute, spec.optimizer) == (None, None, None)
    assert (spec.checkpointing, spec.times_profile) == (True, "a100")
    assert ComputeSpec.model_validate({"profile": "a100", "checkpointing": False}).checkpointing is False


@pytest.mark.filterwarnings("error")
def test_checkpointing_is_said_for_all_stages_or_for_each() -> None:
    each = ComputeSpec.model_validate({"profile": "a100", "checkpointing": [True, False]})
    assert each.checkpointing == (True, False)
    assert each.model_dump(mode="json")["checkpointing"] == [True, False]
    assert "entry 1: 7 is neither true nor false" in words_of_refusal(
        ComputeSpec, profile="a100", checkpointing=[True, 7]
    )


def test_torch_computes_on_a_device_by_itself_and_is_planned_for_with_a_profile() -> None:
    spec = ComputeSpec.model_validate({"kind": "torch"})
    assert (spec.device, spec.threads, spec.sharing, spec.check_iteration) == ("auto", 1, None, None)
    assert (spec.forward, spec.checkpointing) == (None, True)
    assert spec.times_profile is not None
    assert ComputeSpec.model_validate({**TORCH, "threads": 3}).threads == 3


def test_counts_are_taken_from_end_to_end_of_their_range() -> None:
    for field, least, most in (("threads", 1, 1024), ("sharing", 1, 1024), ("check_iteration", 0, 10_000)):
        assert takes_from_to(ComputeSpec, field, least, most, **TORCH), field


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"profile": "a100", "forward": "1ms"}, "forward: times are not written here, the profile gives them"),
        ({"profile": "a100", "backward": "1ms"}, "backward: times are not written here, the profile gives them"),
        ({"profile": "a100", "recompute": "1ms"}, "recompute: times are not written here"),
        ({"profile": "a100", "optimizer": "1ms"}, "optimizer: times are not written here"),
        ({"profile": "a100", "backward_weight": "1ms"}, "backward_weight: times are not written here"),
        ({"kind": "torch", "forward": "1ms"}, "forward: times are not written here, torch measures them"),
        ({"kind": "torch", "activation": "1MiB"}, "activation: torch sends what the model makes"),
        ({"kind": "torch", "gradient": "1MiB"}, "gradient: torch sends what the model makes"),
        ({"kind": "torch", "device": "cpu", "sharing": 1}, "sharing: only GPUs are shared"),
        ({"device": "cpu"}, "device: only torch computes on a device"),
        ({"threads": 1}, "threads: only torch computes on a device"),
        ({"sharing": 1}, "sharing: only torch computes on a device"),
        ({"resample": True}, "resample: it draws from the times of a run"),
        (
            {"resample": True, "from": "runs/a", "jitter": {"spread": "5%"}},
            "jitter: resample draws times that vary already",
        ),
        ({"checkpointing": True}, "checkpointing: times are written out here"),
        ({"checkpointing": False}, "checkpointing: times are written out here"),
        ({"trace": "t", "kind": "torch"}, "trace: only kind: replay replays a trace"),
        ({"trace": "t", "forward": "1ms"}, "forward: the trace has its own times and sizes"),
        ({"trace": "t", "from": "runs/a"}, "from: the trace has its own times and sizes"),
        ({"trace": "t", "slower": [{"stage": 0, "factor": 2}]}, "slower: the trace has its own times and sizes"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(fields: dict[str, Any], words: str) -> None:
    assert words in words_of_refusal(ComputeSpec, **fields)


def test_fields_that_go_together_are_taken() -> None:
    assert ComputeSpec.model_validate({"profile": "a100", "activation": "1MiB", "gradient": "2MiB"}).gradient == 2**21
    assert ComputeSpec.model_validate({**TORCH, "sharing": 2}).sharing == 2
    assert ComputeSpec.model_validate({"trace": "t"}).forward is None


def test_repeats_differ_where_times_are_drawn() -> None:
    def varies(**fields: object) -> bool:
        return ComputeSpec.model_validate(fields).varies

    assert varies(jitter={"spread": "5%"})
    assert varies(resample=True, **{"from": "runs/a"})
    assert not varies()
    assert not varies(jitter={"spread": "0%"})
    assert not varies(resample=False, **{"from": "runs/a"})


def test_fields_that_came_later_are_written_only_where_they_say_something() -> None:
    plain = written()
    later: dict[str, Any] = {
        "slower": [{"stage": 0, "factor": 2.0}],
        "jitter": {"distribution": "normal", "spread": "5%"},
        "from": "runs/a",
    }
    assert plain.keys().isdisjoint({*later, "from_run", "options", "deterministic", "trace", "resample"})
    full = written(**later)
    assert full.keys() - plain.keys() == later.keys()
    assert (full["from"], full["jitter"], full["slower"][0]["factor"]) == ("runs/a", later["jitter"], 2.0)
    assert written(trace="t")["trace"] == "t"
    assert written(resample=True, **{"from": "runs/a"})["resample"] is True
    assert written(resample=False) == plain


def test_a_factor_is_a_number_from_a_thousandth_to_a_thousand() -> None:
    assert taken(SlowerSpec, "factor", 0.001, 1.6, 2, 1000, stage=0) == [0.001, 1.6, 2.0, 1000.0]
    for written in (0.00099, 1000.1, 0, -1, True, "2", None):
        assert "is no factor: give a number from 0.001 to 1000" in words_of_refusal(SlowerSpec, factor=written, stage=0)


def test_it_is_about_gpus_of_a_datacenter_host_pipeline_or_stage() -> None:
    named = {"datacenter": "west", "host": "west-0", "pipeline": 0, "stage": 0}
    for name, value in named.items():
        assert SlowerSpec.model_validate({name: value, "factor": 2}).choice == f"{name} {value}"
    everything = SlowerSpec.model_validate({**named, "factor": 2})
    assert everything.choice == "datacenter west, host west-0, pipeline 0, stage 0"
    assert "name the GPUs that it is about" in words_of_refusal(SlowerSpec, factor=2)


def test_pipelines_and_stages_count_from_0_to_one_less_than_there_can_be() -> None:
    assert takes_from_to(SlowerSpec, "pipeline", 0, 1023, factor=2)
    assert takes_from_to(SlowerSpec, "stage", 0, 1023, factor=2)


def test_a_spread_is_limited_where_times_would_reach_zero() -> None:
    assert taken(JitterSpec, "spread", "30%") == [0.3]
    assert "at most 30%" in words_of_refusal(JitterSpec, spread="30.1%")
    assert taken(JitterSpec, "spread", "57%", distribution="uniform") == [0.57]
    assert "at most 57%" in words_of_refusal(JitterSpec, spread="57.1%", distribution="uniform")
    for distribution in ("gamma", "lognormal"):
        assert taken(JitterSpec, "spread", "100%", distribution=distribution) == [1.0]
