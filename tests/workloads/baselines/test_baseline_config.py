import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.workloads.changed import changed
from wanbed.results.records.span_log import RankPlace
from wanbed.workloads.baselines.baseline_config import (
    BaselineConfig,
    BaselineShape,
    GlooConfig,
    read_baseline_config,
)
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.kept_files import KeptFilesConfig

ROOT = Path(__file__).parents[3]
PLAN = BaselineConfig(
    RankPlace(rank=5, host="west-1", datacenter="west", gpu=0, pipeline=1, stage=2),
    BaselineShape("torch-zb", stages=3, pipelines=2, microbatches=6),
    iterations=3,
    learning=LearningConfig(GptConfig(6, hidden=64, context=32, heads=4, vocabulary=256), 1e-3, "fp32", seed=7),
    gloo=GlooConfig("10.2.0.2", "eth0", "10.0.0.1", 20_100),
    span_log="/tmp/rank-5.spans",
    epoch_ns=123,
    kept=KeptFilesConfig("/tmp/rank-5.npz"),
    parent_pid=4711,
)


def test_a_config_reads_back_as_written(tmp_path: Path) -> None:
    for plan in (PLAN, changed(PLAN, text="/tmp/text", gradients=None, parent_pid=None, threads=2)):
        plan.write(tmp_path / "plan.json")
        assert read_baseline_config(tmp_path / "plan.json") == plan


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"shape": {"schedule": "gpipe"}},
            "shape.schedule: 'gpipe' is none of torch-gpipe, torch-1f1b, torch-zb, torch-",
        ),
        ({"learning": {"precision": "fp64"}}, "learning.precision: torch does not train in 'fp64': fp32, bf16"),
        ({"place": {"rank": 4}}, "place.rank: 4, where stage 2 of pipeline 1 is rank 5"),
        ({"place": {"stage": 3}}, "place.stage: 3 is none of the 3 stages"),
        ({"place": {"pipeline": 2}}, "place.pipeline: 2 is none of the 2 pipelines"),
        ({"iterations": 0}, "iterations: 0 is below 1"),
        ({"learning": {"learning_rate": 0.0}}, "learning.learning_rate: 0.0 is not above 0"),
        ({"gloo": {"silence_ns": 0}}, "gloo.silence_ns: 0 is below 1"),
        ({"gloo": {"store_port": 0}}, "gloo.store_port: 0 is no port"),
        (
            {"place": {"rank": 0, "pipeline": 0, "stage": 0}},
            "gloo.store_address: rank 0 serves the store at its own address",
        ),
        (
            {"kept": {"checkpoints": {"folder": "/tmp", "every": 1, "resume": []}}},
            "kept.checkpoints: torch's schedules",
        ),
        (
            {"shape": {"microbatches": 7}},
            "shape.microbatches: 7, where torch-zb runs 2 rounds on 3 stages and needs a multiple of 2",
        ),
        (
            {"shape": {"schedule": "torch-1f1b", "microbatches": 2}},
            "shape.microbatches: 2, where torch-1f1b needs one for each",
        ),
        ({"shape": {"schedule": "torch-ddp"}}, "shape.stages: torch-ddp trains whole replicas: 1 stage, not 3"),
        ({"shape": {"stages": 1, "schedule": "torch-gpipe"}}, "shape.stages: torch-gpipe needs 2 stages"),
        ({"shape": {"stages": 9}, "place": {"rank": 11}}, "stages: 6 layers make 1 to 6 stages, not 9"),
        ({"learning": {"model": {"layers": 6}}}, "learning.model: "),
        ({"colour": "red"}, "colour: unknown field"),
    ],
)
def test_an_invalid_config_is_refused_with_path_and_field(
    tmp_path: Path, changes: dict[str, object], fault: str
) -> None:
    path = tmp_path / "plan.json"
    PLAN.write(path)
    document = json.loads(path.read_text())
    for name, value in changes.items():
        document[name] = document[name] | value if isinstance(value, dict) else value
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"plan\.json") as refusal:
        read_baseline_config(path)
    assert str(refusal.value).startswith(f"{path}: {fault}")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("schedule", ["torch-gpipe", "torch-1f1b", "torch-zb"])
def test_numbers_of_microbatches_are_refused_where_torch_refuses_them(schedule: str, stages: int) -> None:
    import torch
    from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe, ScheduleInterleavedZeroBubble
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=stages)
    try:
        stage = torch.distributed.pipelining.PipelineStage(torch.nn.Identity(), 0, stages, torch.device("cpu"))
        for microbatches in range(1, 3 * stages + 2):
            try:
                if schedule == "torch-zb":
                    ScheduleInterleavedZeroBubble([stage], microbatches)
                elif schedule == "torch-1f1b":
                    Schedule1F1B(stage, microbatches)
                else:
                    ScheduleGPipe(stage, microbatches)
                by_torch = True
            except ValueError:
                by_torch = False
            try:
                BaselineShape(schedule, stages, 1, microbatches)
                by_us = True
            except ValueError:
                by_us = False
            assert by_us == by_torch, microbatches
    finally:
        torch.distributed.destroy_process_group()


def test_a_config_is_read_without_torch() -> None:
    check = (
        "import sys, wanbed.workloads.baselines.baseline_config, wanbed.workloads.baselines.torch_rank; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
