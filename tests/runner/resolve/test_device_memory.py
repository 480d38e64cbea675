"""The arithmetic of a device's memory, before anything is started."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.present import present
from wanbed.ground.errors import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.device_memory import (
    CONTEXT_BYTES,
    DeviceMemory,
    check_device_memory,
    most_in_flight,
    process_needs,
)
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.stage_memory import GIB

MICROBATCHES = 8


def point(schedule: str, *, model: str = "gpt-tiny", stages: int = 4, **changes: Any) -> SweepPoint:
    baseline = schedule.startswith("torch-")
    return parse_experiment(
        {
            "topology": {"datacenters": [{"name": "east", "hosts": 6, "serving_hosts": 1}]},
            "model": model,
            "compute": {"kind": "torch", "device": "cuda", **({"checkpointing": False} if baseline else {})},
            "training": {"stages": stages, "pipelines": 1, "microbatches": MICROBATCHES},
            "variants": [{"name": "only", "schedule": schedule}],
            **changes,
        },
        "exp.yaml",
        Path(),
    ).points()[0]


@pytest.mark.parametrize(
    ("schedule", "in_flight"),
    [
        ("gpipe", [8, 8, 8, 8]),
        ("1f1b", [4, 3, 2, 1]),
        ("torch-gpipe", [8, 8, 8, 8]),
        ("torch-1f1b", [4, 3, 2, 1]),
        ("torch-zb", [4, 4, 4, 4]),
        ("varuna", [8, 8, 8, 8]),  # it runs ahead as far as it may
    ],
)
def test_microbatches_in_flight_follow_the_schedule(schedule: str, in_flight: list[int]) -> None:
    (variant,) = point(schedule).variants
    assert [most_in_flight(variant, 0, stage) for stage in range(4)] == in_flight


def test_torchs_data_parallelism_holds_one_microbatch_at_a_time() -> None:
    (variant,) = point("torch-ddp", stages=1).variants
    assert most_in_flight(variant, 0, 0) == 1


@pytest.mark.parametrize("schedule", ["varuna", "zb-2p"])
def test_a_last_stage_that_keeps_its_activations_counts_with_them(schedule: str) -> None:
    def last_bytes(one: str) -> int:
        of = point(one, model="gpt-a", training={"stages": 4, "microbatches": 1})
        (*_, last) = [need.training for need in process_needs(of, of.variants[0]) if need.training]
        return last.activation_bytes

    # Of one microbatch in flight the backward takes as much either way.
    assert last_bytes(schedule) == last_bytes("gpipe")
    kept, recomputed = (
        [need.training.activation_bytes for need in process_needs(of, of.variants[0]) if need.training][-1]
        for of in (point(one, model="gpt-a") for one in (schedule, "gpipe"))
    )
    assert kept > 3 * recomputed


def test_a_bound_on_memory_holds() -> None:
    training = {"stages": 4, "microbatches": MICROBATCHES, "memory_bound": 3}
    (variant,) = point("varuna", training=training).variants
    assert [most_in_flight(variant, 0, stage) for stage in range(4)] == [3] * 4


@pytest.mark.parametrize(("model", "tensors_gib"), [("gpt-a", 69.5), ("gpt-b", 246)])
def test_six_ranks_with_one_microbatch_each_take_what_their_stages_take(model: str, tensors_gib: float) -> None:
    one = point("1f1b", model=model, stages=6, training={"stages": 6, "microbatches": 1})
    trained = [need.training for need in process_needs(one, one.variants[0])]
    assert len(trained) == 6
    assert sum(each.total_bytes for each in trained if each) / GIB == pytest.approx(tensors_gib, abs=0.5)


def test_a_baseline_keeps_the_activations_of_every_microbatch() -> None:
    def activations(schedule: str) -> list[int]:
        one = point(schedule, model="gpt-a")
        return [need.training.activation_bytes for need in process_needs(one, one.variants[0]) if need.training]

    kept, recomputed = activations("torch-gpipe"), activations("gpipe")
    assert all(one > 3 * other for one, other in zip(kept, recomputed, strict=True))


def one_device(of: SweepPoint, memory_bytes: int, **options: Any) -> None:
    check_device_memory(of, lambda *_: "GPU-0", {"GPU-0": DeviceMemory("a GPU", memory_bytes, memory_bytes)}, **options)


def test_every_process_on_the_device_counts_with_its_context() -> None:
    of = point("1f1b")
    trained = sum(need.training.total_bytes for need in process_needs(of, of.variants[0]) if need.training)
    one_device(of, trained + 4 * CONTEXT_BYTES)
    with pytest.raises(
        InputError, match=r"^variants\.0: 4 processes on a GPU need 2\.\d GiB \(.*contexts 2\.4.*: let fewer"
    ):
        one_device(of, trained + 4 * CONTEXT_BYTES - 1)


PREFILL = {"rate": "4/s", "model": "llama-tiny", "profile": "measured", "memory": "12GiB", "training_memory": "4GiB"}


def test_prefill_counts_with_all_the_memory_that_it_may_reserve() -> None:
    of = point("1f1b", prefill=PREFILL)
    needs = list(process_needs(of, of.variants[0]))
    assert [need.prefill_bytes for need in needs[:4]] == [8 * GIB] * 4
    decoding = needs[-1]
    assert (decoding.host, decoding.training) == ("east-serving-0", None)
    assert 0 < decoding.prefill_bytes < GIB
    with pytest.raises(InputError, match=r"prefill 32\.\d, .*: give less prefill\.memory, or let fewer share it$"):
        one_device(of, 30 * GIB)
    one_device(of, 3 * GIB, on_cpu=True)


def test_a_swapped_model_takes_what_two_groups_may_have_of_a_gpu() -> None:
    options = {"swap": "12GB/s", "memory": "4GiB", "sync_every": 1}
    of = point(
        "atom",
        model="gpt-a",
        stages=1,
        topology={
            "datacenters": [{"name": name, "hosts": 1} for name in ("east", "west")],
            "wan": {"latency": "10ms"},
        },
        training={"pipelines": 2, "microbatches": 4, "iterations": 4, "warmup": 1},
        variants=[{"name": "only", "schedule": "atom", "options": options}],
    )
    on_gpu, on_cpu = (present(next(process_needs(of, of.variants[0], on_cpu=each)).training) for each in (False, True))
    assert (on_gpu.weight_bytes, on_gpu.gradient_bytes, on_gpu.optimizer_bytes) == (4 * GIB, 4 * GIB, 0)
    assert on_cpu.optimizer_bytes > on_cpu.weight_bytes > 8 * GIB


def test_a_device_of_unknown_memory_is_not_checked() -> None:
    check_device_memory(point("1f1b", model="gpt-b"), lambda *_: "GPU-0", {})
