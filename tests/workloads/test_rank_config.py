import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from wanbed.results.records.span_log import RankPlace
from wanbed.workloads.bubbletea.prefill_profile import PrefillProfile
from wanbed.workloads.bubbletea.prefill_settings import PrefillSettings
from wanbed.workloads.collective.collective_config import CollectiveConfig
from wanbed.workloads.compute.backends.backend import ComputeConfig
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device_settings import DeviceSettings
from wanbed.workloads.compute.replay import ReplayCosts, ReplayDurations, ReplaySizes
from wanbed.workloads.connected_config import RankProcessConfig
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS, InferenceWork
from wanbed.workloads.rank_config import RankConfig, ScheduleConfig, read_rank_config
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.serving.serving_configs import Endpoint, GpuServingConfig, ServedStage, ServingPeers
from wanbed.workloads.transport.links_config import (
    BoundariesConfig,
    BoundaryConfig,
    LinksConfig,
    RendezvousConfig,
    RingConfig,
    RingsConfig,
)
from wanbed.workloads.transport.peer import Peer

PLAN = RankConfig(
    place=RankPlace(1, "central-0", "central", gpu=0, pipeline=0, stage=1),
    process=RankProcessConfig("/tmp/rank-1.spans", 123_456_789, parent_pid=4711),
    iterations=3,
    schedule=ScheduleConfig(
        "wanbed.workloads.schedules.one_forward_one_backward:OneForwardOneBackward",
        PipelineShape(3, 8, recompute=(False, True, True), memory_bound=(3, 2, 1)),
        {"warmup_depth": 5},
    ),
    compute=ComputeConfig(
        backend="wanbed.workloads.compute.backends.replay_backend:ReplayBackend",
        costs=ReplayCosts(
            ReplayDurations(20_000_000, 40_000_000, 5_000_000), ReplaySizes(1_048_576, 2_097_152, gradient_bytes=99)
        ),
        computed=ComputedStage(stages=3, stage=1, pipelines=2, pipeline=0, microbatches=8),
        learning=LearningConfig(
            GptConfig(layers=4, hidden=64, context=16, heads=2, vocabulary=32), 0.1, "fp32", seed=3
        ),
        options={"size": [1, {"a": None}]},
    ),
    links=LinksConfig(
        rank=1,
        pipeline=0,
        stage=1,
        peers=(
            Peer(0, "east-0", "10.0.0.1", None, 1),
            Peer(2, "west-0", "10.2.0.1", 29_502, 16),
            Peer(4, "central-1", "10.1.0.2", 29_504, 1),
        ),
        iterations=3,
        boundaries=BoundariesConfig(
            BoundaryConfig(0, 2_097_152),
            BoundaryConfig(2, 1_048_576, (1, 4), tuple((p, m) for m in range(8) for p in (1, 0))),
            microbatches=8,
        ),
        rings=RingsConfig((RingConfig((1, 4)),)),
    ),
    rendezvous=RendezvousConfig("10.1.0.1", 29_501, "00112233445566778899aabbccddeeff"),
)


def written(tmp_path: Path, **changes: object) -> Path:
    """The plan's file, with fields set or, where the value is ``...``, left out; ``a__b`` is the field b within a."""
    path = tmp_path / "plan.json"
    PLAN.write(path)
    document = json.loads(path.read_text())
    for name, value in changes.items():
        *outer, last = name.split("__")
        target = document
        for step in outer:
            target = target[step]
        if value is ...:
            del target[last]
        else:
            target[last] = value
    path.write_text(json.dumps(document))
    return path


def test_a_config_reads_back_as_written(tmp_path: Path) -> None:
    PLAN.write(tmp_path / "plan.json")
    assert read_rank_config(tmp_path / "plan.json") == PLAN


def test_one_value_for_all_stages_reads_back_too(tmp_path: Path) -> None:
    shape = PipelineShape(3, 8, recompute=True, memory_bound=2)
    plan = replace(PLAN, schedule=replace(PLAN.schedule, shape=shape), process=RankProcessConfig("/tmp/spans", 1))
    plan.write(tmp_path / "plan.json")
    assert read_rank_config(tmp_path / "plan.json") == plan


def test_the_token_is_kept_from_other_users(tmp_path: Path) -> None:
    PLAN.write(tmp_path / "plan.json")
    assert stat.S_IMODE((tmp_path / "plan.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"place__stage": "1"}, "place.stage: expected int, found '1'"),
        ({"place__stage": True}, "place.stage: expected int, found True"),
        ({"place__stage": 3, "links__stage": 3}, "place.stage: 3 is none of the 3 stages"),
        ({"iterations": 0}, "iterations: 0 is below 1"),
        ({"place__rank": -1}, "place.rank: -1 is below 0"),
        ({"place__gpu": -1}, "place.gpu: -1 is below 0"),
        ({"colour": "red"}, "colour: unknown field"),
        ({"compute__costs__durations__colour": "red"}, "compute.costs.durations.colour: unknown field"),
        ({"compute__costs__durations__forward_ns": -5}, "compute.costs.durations.forward_ns: -5 is negative"),
        (
            {"compute__costs__durations__recompute_ns": 0},
            "compute.costs.durations.recompute_ns: 0, where the shape says that stage 1 recomputes",
        ),
        ({"compute": 5}, "compute: expected an object, found 5"),
        ({"compute__backend": "torch"}, "compute.backend: 'torch' is not the path of a class"),
        ({"kept__gradients": "/tmp/gradients.npz"}, "kept.gradients: replayed compute makes none, leave the file out"),
        ({"schedule__shape__stages": 0}, "schedule.shape.stages: 0 is below 1"),
        ({"schedule__shape__recompute": [True, 1, True]}, "schedule.shape.recompute.1: expected bool, found 1"),
        ({"schedule__shape__memory_bound": "2"}, "schedule.shape.memory_bound: expected int, found '2'"),
        ({"links__boundaries__previous": None}, "links.boundaries.previous: stage 1 of 3 has one"),
        ({"place__stage": 0, "links__stage": 0}, "links.boundaries.previous: stage 0 of 3 has none"),
        ({"place__stage": 0}, "links.stage: 1, where the rank's is 0"),
        (
            {"links__boundaries__microbatches": 4, "links__boundaries__following__outgoing_turns": []},
            "links.boundaries.microbatches: 4, where the shape has 8",
        ),
        ({"links__iterations": 2}, "links.iterations: 2, where the rank's is 3"),
        (
            {"links__rings__replicas": [{"ranks": [1]}]},
            "links.rings.replicas.0.ranks: (1,) are not two or more, each once",
        ),
        ({"rendezvous__listen_port": 70_000}, "rendezvous.listen_port: 70000 is no port to listen on"),
        ({"rendezvous__run_token": "abc"}, "rendezvous.run_token: write 16 bytes in hexadecimal"),
        ({"rendezvous__run_token": "ab"}, "rendezvous.run_token: write 16 bytes in hexadecimal"),
        ({"place": ...}, "the configuration: "),
        ({"place__host": ...}, "place: "),
    ],
)
def test_an_invalid_config_is_refused_with_path_and_field(
    tmp_path: Path, changes: dict[str, object], fault: str
) -> None:
    path = written(tmp_path, **changes)
    with pytest.raises(ValueError, match=r"plan\.json") as refusal:
        read_rank_config(path)
    assert str(refusal.value).startswith(f"{path}: {fault}")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("text", ["", "{", "nonsense", "[]", "null", "3"])
def test_another_file_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=str(path)):
        read_rank_config(path)


def test_a_collective_sums_what_torch_computes() -> None:
    collective = CollectiveConfig("gloo", ("east-0", "east-1"), 0, "eth0", "10.0.0.1", 20_000, 10**9)
    with pytest.raises(ValueError, match=r"^compute\.collective: torch sums what torch has computed"):
        replace(PLAN, compute=replace(PLAN.compute, collective=collective))


def test_training_and_prefill_of_a_gpu_are_both_computed_or_both_replayed() -> None:
    end = Endpoint("east-0", "10.0.0.1", 10_000)
    serving = GpuServingConfig(
        gpu=1,
        pooled=False,
        served=ServedStage(INFERENCE_MODELS["llama-tiny"], 1, 0, 1, 1),
        peers=ServingPeers(end, end, (end,), None, 1),
        profile=PrefillProfile(1.0, 1.0, 0.0, "test", measured=False),
        settings=PrefillSettings(10**9),
        counts="/tmp/counts",
        epoch_ns=0,
    )
    torch = replace(PLAN.compute, backend="wanbed.workloads.compute.backends.torch_backend:TorchBackend")
    computed = replace(serving, inference=InferenceWork(serving.served.model, seed=3, device=DeviceSettings("cpu")))
    assert replace(PLAN, serving=serving).serving == serving
    assert replace(PLAN, compute=torch, serving=computed).serving == computed
    for wrong in (
        {"compute": torch, "serving": serving},
        {"serving": computed},
    ):
        with pytest.raises(ValueError, match=r"^serving\.inference: torch computes training and prefill .* neither$"):
            replace(PLAN, **wrong)  # type: ignore[arg-type]
