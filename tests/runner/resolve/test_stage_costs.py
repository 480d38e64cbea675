import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.present import present
from wanbed.ground.errors import InputError
from wanbed.ground.strict_model import parse_model
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.resolve.stage_costs import StageCosts, profile_conditions, stage_costs, stage_times
from wanbed.workloads.profiles.compute_profile import MeasuredConditions
from wanbed.workloads.schedules.action import ActionKind

TOPOLOGY = {"datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}], "wan": {"latency": "1ms"}}
TINY = {"layers": 4, "hidden": 128, "context": 128, "heads": 4, "vocabulary": 256}
MS = 10**6
_BACKWARDS = (ActionKind.BACKWARD, ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT)


def resolved(stages: int = 2, pipelines: int = 1, **document: Any) -> StageCosts:
    spec = parse_model(ExperimentSpec, {"topology": TOPOLOGY, **document}, "exp.yaml")
    return stage_costs(spec, stages, pipelines, Path())


def write_measured_profile(folder: Path, times_ns: Mapping[str, int] | None = None, **sections: Any) -> None:
    """Write ``measured.json``: every kind of work takes a millisecond, but those that ``times_ns`` names."""
    kinds = ("forward", "backward", "backward_input", "backward_weight", "recompute", "optimizer")
    layer = {**{f"{name}_ns": MS for name in kinds}, **(times_ns or {})}
    document = {
        "title": "measured",
        "basis": "measured",
        "device": "a device",
        "precision": "bf16",
        "source": [{"figures": "all", "origin": "made up"}],
        "model": {"hidden": 128, "context": 128, "heads": 4, "vocabulary": 256},
        **dict.fromkeys(("embedding", "layer", "head"), layer),
        **sections,
    }
    (folder / "measured.json").write_text(json.dumps(document))


def refusal(stages: int = 2, pipelines: int = 1, **document: Any) -> str:
    with pytest.raises(InputError) as caught:
        resolved(stages, pipelines, **document)
    text = str(caught.value)
    assert text.isprintable()
    return text


def test_stages_that_send_nothing_need_no_size_of_an_activation() -> None:
    compute = {"forward": ["1ms", "2ms"]}
    assert refusal(compute=compute).startswith("compute.activation: no model gives the size")
    spec = parse_model(ExperimentSpec, {"topology": TOPOLOGY, "compute": compute}, "exp.yaml")
    sending = resolved(compute={**compute, "activation": "1MiB", "gradient": "1MiB"})
    assert stage_times(spec, 2, Path()) == replace(sending, activation_bytes=(0,), gradient_bytes=(0, 0))


def test_times_that_are_written_out_hold_for_every_stage() -> None:
    work = resolved(
        3, compute={"forward": ["1ms", "2ms", "3ms"], "recompute": "1ms", "optimizer": "5ms", "activation": "1B"}
    )
    assert work.forward_ns == (MS, 2 * MS, 3 * MS)
    assert work.backward_ns == (2 * MS, 4 * MS, 6 * MS)
    assert work.backward_weight_ns == (MS, 2 * MS, 3 * MS)
    assert work.recomputes == (True, True, True)
    assert work.optimizer_ns == (5 * MS,) * 3


def test_a_profile_gives_the_times_of_the_model_with_recomputes_unless_configured() -> None:
    work = resolved(6, model="gpt-a", compute={"profile": "a100"})
    assert 20 * MS < work.forward_ns[2] < 28 * MS
    assert work.backward_ns[2] == pytest.approx(2 * work.forward_ns[2], rel=0.01)
    assert work.recompute_ns == work.forward_ns
    without = resolved(6, model="gpt-a", compute={"profile": "a100", "checkpointing": False})
    assert without.recompute_ns == (0,) * 6
    one_keeps = resolved(6, model="gpt-a", compute={"profile": "a100", "checkpointing": [True] * 5 + [False]})
    assert one_keeps.recompute_ns == (*work.recompute_ns[:-1], 0) == work.keeping_last().recompute_ns
    assert refusal(4, model="gpt-a", compute={"profile": "a100", "checkpointing": [True] * 6}) == (
        "compute.checkpointing: a list of 6 for 4 stages: give one for each, or a single value"
    )


def test_parts_of_a_backward_that_were_measured_are_replayed_as_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {"backward_ns": 2 * MS, "backward_input_ns": 3 * MS, "backward_weight_ns": MS // 2}
    write_measured_profile(tmp_path, parts)
    # By a path relative to here: the absolute one may be longer than a name can be.
    monkeypatch.chdir(tmp_path)
    durations = resolved(4, model="gpt-tiny", compute={"profile": "measured.json"}).replay(1).durations
    assert [durations.of(kind) for kind in _BACKWARDS] == [2 * MS, 3 * MS, MS // 2]


def test_sizes_follow_from_the_model_and_the_precision() -> None:
    halves = resolved(2, 2, model="gpt-tiny")
    wholes = resolved(2, 2, model="gpt-tiny", training={"precision": "fp32"})
    assert halves.activation_bytes == (128 * 128 * 2,)
    assert halves.gradient_bytes[1] > 2 * 2 * 12 * 128**2
    assert wholes.activation_bytes[0] == 2 * halves.activation_bytes[0]
    assert wholes.gradient_bytes == tuple(2 * size for size in halves.gradient_bytes)
    ieee = resolved(2, 2, model="gpt-tiny", training={"precision": "fp16"})
    assert (ieee.activation_bytes, ieee.gradient_bytes) == (halves.activation_bytes, halves.gradient_bytes)


def test_one_pipeline_has_no_gradients_unless_configured() -> None:
    assert resolved(2, 1, model="gpt-tiny").gradient_bytes == (0, 0)
    assert resolved(2, 2, compute={"gradient": ["1MiB", "2MiB"], "activation": "1MiB"}).gradient_bytes == (2**20, 2**21)


@pytest.mark.parametrize(
    ("stages", "pipelines", "document", "text"),
    [
        (2, 1, {"compute": {"forward": ["1ms"]}}, "compute.forward: a list of 1 for 2 stages: give one for each, or"),
        (
            2,
            1,
            {"compute": {"backward": "1ms", "backward_weight": "2ms"}},
            "compute.backward_weight: at stage 0 longer than the backward that it is part of",
        ),
        (2, 1, {"compute": {"profile": "a1000"}}, "compute.profile: "),
        (
            2,
            1,
            {"compute": {"profile": "a100"}, "model": {"hidden": 8, "context": 8}},
            "model: a compute profile needs its layers, heads, vocabulary too",
        ),
        (
            2,
            2,
            {"model": {"hidden": 8, "context": 8, "layers": 2}},
            "model: the all-reduce of gradients (or give compute.gradient) needs its heads, vocabulary too",
        ),
        (
            8,
            2,
            {"model": "gpt-tiny"},
            "training.stages: 8 stages of a model of 4 layers: use fewer stages, or give the model more layers",
        ),
        (
            8,
            1,
            {"model": "gpt-tiny", "compute": {"profile": "a100"}},
            "training.stages: 8 stages of a model of 4 layers: use fewer stages, or give the model more layers",
        ),
        (
            2,
            2,
            {"model": {"layers": 2, "hidden": 8, "context": 8, "heads": 3, "vocabulary": 9}},
            "model.heads: 3 heads do not share a hidden size of 8 evenly",
        ),
        (
            2,
            2,
            {"model": {**TINY, "architecture": "gpt-2"}},
            "model.tied_head: the first and the last of several stages would sum the gradients of their two copies",
        ),
        (
            2,
            1,
            {"model": {**TINY, "kv_heads": 2}, "compute": {"kind": "torch"}},
            "model: torch trains a plain GPT, of architecture gpt",
        ),
        (
            2,
            1,
            {"model": {**TINY, "architecture": "llama"}, "compute": {"profile": "h200"}},
            "compute.profile: profile 'gpt-a and gpt-b on NVIDIA H200 in bf16, measured': measured of a plain GPT",
        ),
    ],
)
def test_invalid_stage_costs_are_refused(stages: int, pipelines: int, document: dict[str, Any], text: str) -> None:
    assert refusal(stages, pipelines, **document).startswith(text)


@pytest.mark.parametrize(
    ("compute", "text"),
    [
        (
            {"profile": "a100", "forward": "1ms"},
            "compute.forward: times are not written here, the profile gives them: leave forward out",
        ),
        ({"kind": "torch", "recompute": "1ms"}, "compute.recompute: times are not written here, torch measures them"),
        ({"kind": "torch", "activation": "1MiB"}, "compute.activation: torch sends what the model makes: leave"),
        ({"device": "cpu"}, "compute.device: only torch computes on a device: give kind: torch, or leave device out"),
        ({"checkpointing": True}, "compute.checkpointing: times are written out here: give a recompute time, or"),
    ],
)
def test_fields_that_do_not_belong_together_are_refused(compute: dict[str, Any], text: str) -> None:
    assert refusal(compute=compute).startswith(f"exp.yaml: {text}")


def test_one_stage_replays_what_it_sends_to_its_neighbours() -> None:
    work = resolved(3, 2, compute={"forward": "1ms", "activation": ["1B", "2B"], "gradient": ["4B", "5B", "6B"]})
    sizes = [work.replay(stage).sizes for stage in range(3)]
    assert [(each.previous_bytes, each.following_bytes, each.gradient_bytes) for each in sizes] == [
        (0, 1, 4),
        (1, 2, 5),
        (2, 0, 6),
    ]
    assert work.document()["activation_bytes"] == [1, 2]
    assert "virtual" not in work.document()


def test_a_model_has_as_many_layers_as_stages_at_least() -> None:
    assert resolved(4, 2, model="gpt-tiny").stages == 4
    assert resolved(4, 1, model="gpt-tiny", compute={"profile": "a100"}).stages == 4
    with pytest.raises(InputError, match="5 stages of a model of 4 layers"):
        resolved(5, 2, model="gpt-tiny")


def test_a_part_of_a_backward_may_be_all_of_it() -> None:
    work = resolved(2, compute={"backward": "4ms", "backward_weight": ["4ms", "1ms"], "activation": "1B"})
    assert work.backward_input_ns == (0, 3 * MS)
    assert "at stage 1 longer than the backward" in refusal(
        2, compute={"backward": "4ms", "backward_weight": ["4ms", "5ms"], "activation": "1B"}
    )


def test_a_profile_holds_for_its_precision_and_torch_may_be_planned_with_any() -> None:
    words = "training.precision: fp32, where the profile a100 holds for bf16"
    assert words in refusal(2, model="gpt-tiny", compute={"profile": "a100"}, training={"precision": "fp32"})
    torch = {"kind": "torch", "profile": "a100"}
    assert resolved(2, model="gpt-tiny", compute=torch, training={"precision": "fp32"}).forward_ns[0] > 0


def test_sizes_beyond_the_largest_are_refused_by_what_makes_them() -> None:
    # 2^20 x 2^20 in bf16 are 2 TiB, and in fp32 4 TiB, the largest.
    model = {"hidden": 2**20, "context": 2**20}
    assert resolved(2, model={**model, "context": 10**6}).activation_bytes == (2 * 10**6 * 2**20,)
    compute = {"forward": "1ms"}
    wide = {"hidden": 2**20, "context": 10**6, "layers": 2, "heads": 1, "vocabulary": 1}
    assert "GiB of gradient, more than" in refusal(1, 2, model=wide, compute=compute)


def test_conditions_are_those_of_a_measured_profile_that_gives_the_times(tmp_path: Path) -> None:
    state = {"clock_hz": None, "memory_clock_hz": None, "temperature_c": None, "power_w": None}
    time = {"median_ns": 5, "spread": 0.0, "repeats_ns": [5]}
    conditions = {
        "measured_at": "noon",
        "driver": None,
        "versions": {},
        "threads": 3,
        "ceiling": {"size": 1, "time": time, "flops_per_s": 1.0},
        "before": state,
        "after": state,
    }
    write_measured_profile(tmp_path, conditions=conditions)

    def found(**compute: Any) -> MeasuredConditions | None:
        spec = parse_model(ExperimentSpec, {"topology": TOPOLOGY, "compute": compute}, "exp.yaml")
        return profile_conditions(spec, tmp_path)

    assert present(found(profile="./measured.json")).threads == 3
    assert (found(), found(profile="a100"), found(forward="1ms")) == (None, None, None)
    assert found(profile="./measured.json", **{"from": "runs/a"}) is None
