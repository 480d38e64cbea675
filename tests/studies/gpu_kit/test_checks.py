"""The checks of the first hour, on the CPU."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from studies.gpu_kit import loopback_training
from studies.gpu_kit.check_collective import run_pair
from studies.gpu_kit.check_events import measure
from studies.gpu_kit.check_training import check, judged
from studies.gpu_kit.clocks import clocks_named
from studies.gpu_kit.loopback_training import LoopbackTraining, TrainingError, train_over_loopback
from tests.support.workloads.forked_rank import ForkedRank
from tests.support.workloads.hostile_gpu.gpu import hostile_device
from tests.support.workloads.hostile_gpu.on_hostile_gpu import on_hostile_gpu
from tests.support.workloads.loopback_ranks import free_ports
from wanbed.workloads.compute.device.torch_device import create_device
from wanbed.workloads.gpt.gpt_config import GptConfig

TRAINED = LoopbackTraining((2.0, 1.0), {"w": np.ones(3)}, ("cpu (cpu)",) * 2)


def forked(program: str, config: Path) -> ForkedRank:
    """A rank that need not load torch. Its parent is the process that has."""
    config.write_text(json.dumps({**json.loads(config.read_text()), "parent_pid": None}))
    return ForkedRank(program, config)


def test_training_on_the_cpu_is_that_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback_training, "start_rank", forked)
    (verdict,) = check("cpu", tmp_path, (("torch-1f1b", "fp32"),))
    assert verdict.passed
    assert (
        verdict.text == "torch-1f1b fp32: losses off by 0.0e+00 of 1e-04, the same bits the second time, on cpu (cpu)"
    )


# Twelve ranks that load torch. The next test starts one too, and the one above lets them train.
@pytest.mark.soak
def test_ranks_that_load_torch_train_on_the_cpu_twice_alike(tmp_path: Path) -> None:
    (verdict,) = check("cpu", tmp_path, (("zb-h1", "fp32"),))
    assert verdict.passed, verdict.text


def test_a_device_that_is_not_there_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    first_alone = {"rank-0.json": loopback_training.start_rank}
    monkeypatch.setattr(
        loopback_training, "start_rank", lambda program, config: first_alone.get(config.name, forked)(program, config)
    )
    with pytest.raises(TrainingError, match=r"^wanbed rank 0 \(east-0\): device: "):
        train_over_loopback("1f1b", "fp32", "cuda", tmp_path / "one")


@pytest.mark.parametrize(
    ("one", "again", "passed"),
    [
        (TRAINED, TRAINED, True),
        (replace(TRAINED, losses=(2.0, 1.01)), replace(TRAINED, losses=(2.0, 1.01)), False),
        (replace(TRAINED, losses=(2.0, float("nan"))), replace(TRAINED, losses=(2.0, float("nan"))), False),
        (TRAINED, replace(TRAINED, gradients={"w": np.zeros(3)}), False),
    ],
)
def test_other_losses_or_bits_fail(one: LoopbackTraining, again: LoopbackTraining, passed: bool) -> None:
    assert judged("case", TRAINED, one, again, 1e-3).passed is passed


def test_the_overhead_of_timing_is_that_over_the_same_work_without() -> None:
    overhead = measure(create_device("cpu"), GptConfig(layers=3, hidden=16, context=8, heads=2, vocabulary=32), 3)
    assert overhead.timed_s > 0
    assert overhead.share == pytest.approx(overhead.timed_s / overhead.bare_s - 1)


def test_timing_on_a_gpu_waits_for_each_span_as_the_work_without_it_does() -> None:
    config = GptConfig(layers=3, hidden=16, context=8, heads=2, vocabulary=32)
    with on_hostile_gpu() as gpu:
        assert measure(hostile_device(gpu), config, 1).bare_s > 0


def test_a_figure_is_followed_by_the_clock_it_was_measured_at(capsys: pytest.CaptureFixture[str]) -> None:
    with clocks_named("cpu"):
        pass
    assert re.fullmatch(r" +clock of .+: median .+, lowest .+, 1 sample\n", capsys.readouterr().out)


def test_a_pair_sums_over_gloo() -> None:
    (port,) = free_ports(1)
    passed, text = run_pair("gloo", port, 1024)
    assert passed, text
    assert text.startswith("gloo: 0 MiB in ")


def test_a_pair_that_cannot_sum_says_why() -> None:
    (port,) = free_ports(1)
    passed, text = run_pair("mpi", port, 1024)
    assert (passed, text) == (False, "check_collective: 'mpi' is none of nccl, gloo")
