"""How many microbatches a stage may hold beside its weights, gradients and optimizer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.present import present
from tests.support.refused import refused
from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.resolve.device_memory import most_in_flight
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.stage_memory import GIB, StageMemory
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.schedules.pipeline_shape import VirtualStages

CONFIG = GptConfig(layers=12, hidden=8192, context=6144, heads=64, vocabulary=50_304)
MICROBATCHES = 16


def memory_of(*, stages: int = 6, chunks: int = 1, recompute: bool = False, **changes: bool) -> StageMemory:
    changes.setdefault("splits", False)
    return StageMemory(CONFIG, "bf16", VirtualStages(stages, chunks), (recompute,) * stages, **changes)


def document(schedule: str, memory: str | None = "80GiB", **changes: Any) -> dict[str, Any]:
    limit = {} if memory is None else {"memory": memory}
    return {
        "topology": {"datacenters": [{"name": "east", "hosts": 12}]},
        "model": "gpt-b",
        "compute": {"profile": "a100", "checkpointing": False},
        "training": {"stages": 6, "microbatches": MICROBATCHES, **limit, **changes.pop("training", {})},
        "variants": [{"name": "v", "schedule": schedule, **changes.pop("variant", {})}],
        "engine": "simulate",
        **changes,
    }


def resolved(*args: Any, **changes: Any) -> PipelineVariant:
    (variant,) = sweep_point(document(*args, **changes)).variants
    assert isinstance(variant, PipelineVariant)
    return variant


@given(st.data())
def test_a_stage_holds_as_many_microbatches_as_fit_and_not_one_more(data: st.DataObject) -> None:
    stages, chunks = data.draw(st.integers(1, 6)), data.draw(st.sampled_from([1, 2]))
    recompute, splits, keeps_sums = (data.draw(st.booleans()) for _ in range(3))
    memory = memory_of(stages=stages, chunks=chunks, recompute=recompute, splits=splits, keeps_sums=keeps_sums)
    memory_bytes = data.draw(st.integers(1, 400 * GIB))
    for stage in range(stages):
        most = memory.most_held(stage, memory_bytes)
        assert most == 0 or memory.of(stage, most).total_bytes <= memory_bytes
        assert memory.of(stage, most + 1).total_bytes > memory_bytes


@pytest.mark.parametrize("recompute", [True, False])
def test_split_backwards_keep_more_than_recomputed_ones_and_about_as_much_as_others(recompute: bool) -> None:
    whole, split = (memory_of(recompute=recompute, splits=splits) for splits in (False, True))
    for stage in range(6):
        assert whole.of(stage, 1).activation_bytes <= split.of(stage, 1).activation_bytes
        kept, deferred = (
            memory.of(stage, 3).activation_bytes - memory.of(stage, 1).activation_bytes for memory in (whole, split)
        )
        assert kept <= deferred
        assert (deferred <= 1.05 * kept) is not recompute


def test_sums_of_flushes_take_the_gradients_once_more() -> None:
    once, twice = (memory_of(keeps_sums=keeps).of(2, 3) for keeps in (False, True))
    assert twice.gradient_bytes == 2 * once.gradient_bytes
    assert twice.activation_bytes == once.activation_bytes


@pytest.mark.parametrize("schedule", ["1f1b", "varuna", "zb-h1", "zb-2p", "atlas"])
def test_every_schedule_holds_no_more_than_fits(schedule: str) -> None:
    variant = resolved(schedule, "60GiB")
    unlimited = resolved(schedule, None)
    bounds = present(variant.memory_bound)
    assert isinstance(bounds, tuple)
    for stage, bound in enumerate(bounds):
        assert most_in_flight(variant, 0, stage) <= bound
    assert any(most_in_flight(unlimited, 0, stage) > bound for stage, bound in enumerate(bounds))


def test_the_narrower_of_memory_and_memory_bound_holds() -> None:
    by_memory = present(resolved("1f1b").memory_bound)
    assert isinstance(by_memory, tuple)
    assert by_memory[0] > 2
    assert resolved("1f1b", training={"memory_bound": 2}).memory_bound == (2,) * 6
    assert resolved("1f1b", "2000GiB").memory_bound == (MICROBATCHES,) * 6


def test_a_variant_may_have_gpus_of_another_size() -> None:
    own = resolved("1f1b", variant={"training": {"memory": "60GiB"}})
    assert own.memory_bound == resolved("1f1b", "60GiB").memory_bound != resolved("1f1b").memory_bound


LAYERLESS = {"hidden": 64, "context": 64}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            document("1f1b", "40GiB"),
            "exp.yaml: training.memory: stage 0 of 6 takes 47.2 GiB (weights 3.9, gradients 3.9, optimizer 30.9, "
            "activations 4.3, and a tenth more) with a single microbatch, more than 40GiB: give more stages, or more "
            "memory",
        ),
        (
            document("1f1b", variant={"training": {"memory": "40GiB"}}),
            "exp.yaml: variants.0.training.memory: stage 0 of 6 takes",
        ),
        (
            document("gpipe"),
            "variants.0.schedule: memory_bound: GPipe holds all 16 microbatches at stage 0, which may hold 10: take "
            "fewer microbatches or 1f1b, or give more training.memory",
        ),
        (
            document("1f1b", model=LAYERLESS, compute={"forward": "1ms"}),
            "model: training.memory needs its layers, heads, vocabulary too",
        ),
        (
            document("1f1b", model="gpt-tiny", compute={"forward": "1ms"}),
            "training.stages: 6 stages of a model of 4 layers",
        ),
        (
            document("torch-1f1b", compute={"kind": "torch", "checkpointing": False}, engine="emulate"),
            "training.memory: torch-1f1b keeps no bound of microbatches",
        ),
        (
            document("atom", training={"stages": 1}, variant={"options": {"swap": "12GB/s", "sync_every": 1}})
            | {"compute": {"profile": "a100"}},
            "training.memory: atom swaps its layers through the memory that options.memory gives",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(changed: dict[str, Any], message: str) -> None:
    assert message in refused(lambda: sweep_point(changed))
