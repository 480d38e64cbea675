"""The check of swapping, on the CPU and on a hostile GPU."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from studies.gpu_kit.check_swapping import LoneTraining, Result, check, judged, main, measure, memory_of
from tests.support.workloads.hostile_gpu.gpu import MIB
from tests.support.workloads.hostile_gpu.on_hostile_gpu import on_hostile_gpu
from tests.support.workloads.hostile_gpu.streams import Order
from tests.support.workloads.one_thread import one_thread
from wanbed.workloads.gpt.gpt_config import GptConfig

TINY = GptConfig(layers=6, hidden=16, context=8, heads=2, vocabulary=32)
TRAINED = LoneTraining((2.0, 1.0), {"w": np.ones(3)}, {"w": np.ones(3)}, (5, 5), (1, 1), None, "cpu")

_one_thread = pytest.fixture(autouse=True)(one_thread)


@pytest.fixture(scope="module")
def checked() -> list[Result]:
    return list(check("cpu", TINY))


def test_swapping_on_the_cpu_gives_the_bits_without_it(checked: list[Result]) -> None:
    for result in checked:
        assert result.passed
        assert "the same bits as those without swapping" in result.text


def test_a_hostile_gpu_is_measured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # One thread of the CPU that plays it: on kernels this small several would mostly wait for each other.
    monkeypatch.setattr("studies.gpu_kit.check_swapping.os.sched_getaffinity", lambda _process: {0})
    with on_hostile_gpu(Order.RANDOM, memory_bytes=8 * MIB):
        results = list(measure("auto", replace(TINY, layers=3), 1))
    assert [result.passed for result in results if result.passed is not None] == [True]
    assert sum(result.text.startswith("group ") for result in results) > 1


@pytest.mark.parametrize(
    ("again", "passed"),
    [
        (TRAINED, True),
        (replace(TRAINED, losses=(2.0, 1.01)), False),
        (replace(TRAINED, gradients={"w": np.zeros(3)}), False),
        (replace(TRAINED, weights={"w": np.zeros(3)}), False),
    ],
)
def test_groupings_with_other_bits_fail(again: LoneTraining, passed: bool) -> None:
    assert judged("fp32", TRAINED, [TRAINED, again], 1e-5).passed is passed


@pytest.mark.parametrize(
    ("whole", "passed"),
    [
        (replace(TRAINED, losses=(2.0, 1.000001)), True),
        (replace(TRAINED, losses=(2.0, 1.01)), False),
        (replace(TRAINED, losses=(2.000001, 1.0)), False),
        (replace(TRAINED, losses=(2.0, float("nan"))), False),
    ],
)
def test_losses_far_from_those_without_swapping_fail(whole: LoneTraining, passed: bool) -> None:
    assert judged("fp32", whole, [TRAINED], 1e-5).passed is passed


def test_two_layers_fit_into_what_the_device_may_have() -> None:
    two = replace(TINY, layers=2)
    assert memory_of(two) == two.gradient_bytes(0, 1, "bf16")


def test_the_figures_are_written_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, checked: list[Result]
) -> None:
    monkeypatch.setattr("studies.gpu_kit.check_swapping.LARGE", {"cpu": TINY})
    monkeypatch.setattr("studies.gpu_kit.check_swapping.check", lambda _: iter(checked))
    assert main(["cpu", "--microbatches", "2", "--output", str(tmp_path / "figures.json")]) == 0
    written = json.loads((tmp_path / "figures.json").read_text())
    printed = [line for line in capsys.readouterr().out.splitlines() if "clock of" not in line]
    assert len(printed) == len(written) + 1
    (passes,) = [each["figures"] for each in written if each["text"].startswith("both passes")]
    assert passes["both_passes_ns"] > 0
    assert passes["formula_ns"] > 0
