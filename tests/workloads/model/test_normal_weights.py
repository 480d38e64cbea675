import os

import pytest
import torch
from torch import Tensor

from wanbed.workloads.model import normal_weights
from wanbed.workloads.model.normal_weights import NormalWeights, draw_weights

BLOCK = normal_weights._BLOCK_VALUES
GROUP = normal_weights._GROUP_VALUES
SEED = 7


class Away(Tensor):
    """A tensor that says it is not in the CPU's memory."""

    is_cpu = False


def named(counts: list[int], dtype: torch.dtype = torch.float32) -> list[NormalWeights]:
    return [NormalWeights(f"layers.{count}.weight", torch.empty(count, dtype=dtype), 0.02) for count in counts]


def drawn_at_once(weights: NormalWeights) -> Tensor:
    """The values that a single call of torch draws, rounded."""
    generator = normal_weights._generator_of(SEED, weights.name)
    exact = torch.empty(weights.tensor.shape, dtype=torch.float32)
    return exact.normal_(0, weights.deviation, generator=generator).to(weights.tensor.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "count",
    [1, GROUP - 1, GROUP, GROUP + 1, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + GROUP - 1, BLOCK + GROUP, 3 * BLOCK + 7],
)
def test_values_drawn_block_by_block_are_those_drawn_at_once(count: int, dtype: torch.dtype) -> None:
    (weights,) = named([count], dtype)
    draw_weights([weights], SEED)
    assert torch.equal(weights.tensor, drawn_at_once(weights))


@pytest.mark.parametrize("cores", [1, 2, 7])
def test_the_number_of_cores_changes_no_bit(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    weights = named([300, 5, BLOCK + 3, 40, 1000])
    draw_weights(weights, SEED)
    for each in weights:
        assert torch.equal(each.tensor, drawn_at_once(each))


def test_weights_of_another_device_are_drawn_in_the_cpus_memory_a_batch_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches: list[int] = []
    beside = normal_weights._beside

    def counted(weights: NormalWeights) -> NormalWeights:
        batches.append(weights.tensor.numel())
        return beside(weights)

    monkeypatch.setattr(normal_weights, "_BATCH_VALUES", 100)
    monkeypatch.setattr(normal_weights, "_beside", counted)
    here = named([60, 30, 50, 400, 20])
    away = [each._replace(tensor=each.tensor.as_subclass(Away)) for each in here]
    assert [sum(each.tensor.numel() for each in batch) for batch in normal_weights._batches(away)] == [90, 50, 400, 20]
    draw_weights(away, SEED)
    assert batches == [60, 30, 50, 400, 20]
    for each in here:
        assert torch.equal(each.tensor, drawn_at_once(each))
