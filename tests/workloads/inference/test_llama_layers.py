"""Which kernel a GPU would run is shown by tensors without content, whose operators are recorded. No GPU is needed."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import bias
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.workloads.reference_llama import TINY
from wanbed.workloads.inference.llama_layers import (
    ROTARY_BASE,
    LlamaLayers,
    Rotation,
    build_layers,
    chunk_attention,
    chunk_mask,
)

ALL_LAYERS = range(TINY.layers)

CPU = torch.device("cpu")


def tiny(layers: range, seed: int = 5, dtype: torch.dtype = torch.float32) -> LlamaLayers:
    return build_layers(TINY, layers, seed=seed, dtype=dtype, device=CPU)


def cuts(depth: int) -> list[range]:
    sizes = TINY.stage_layers(depth)
    return [range(sum(sizes[:stage]), sum(sizes[: stage + 1])) for stage in range(depth)]


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
def test_weights_and_their_names_are_the_same_however_the_model_is_cut(depth: int) -> None:
    whole = dict(tiny(ALL_LAYERS).named_parameters())
    cut = [entry for layers in cuts(depth) for entry in tiny(layers).named_parameters()]
    assert len(cut) == len(whole)
    for name, parameter in cut:
        assert torch.equal(parameter, whole[name])


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_stages_have_the_weight_bytes_that_the_model_counts(depth: int) -> None:
    for layers in cuts(depth):
        counted = TINY.weight_bytes(len(layers), embedding=layers.start == 0, head=layers.stop == TINY.layers)
        assert sum(parameter.nbytes for parameter in tiny(layers).parameters()) == counted


def test_no_two_parameters_have_the_same_weights() -> None:
    drawn = [parameter.flatten()[:16] for parameter in tiny(ALL_LAYERS).parameters() if parameter.dim() > 1]
    assert len({tuple(weights.tolist()) for weights in drawn}) == len(drawn)


def test_another_seed_gives_other_weights() -> None:
    one, other = (tiny(ALL_LAYERS, seed).head for seed in (5, 6))
    assert one is not None
    assert other is not None
    assert not torch.equal(one.weight, other.weight)


def test_bf16_weights_are_those_of_fp32_rounded() -> None:
    exact = dict(tiny(ALL_LAYERS).named_parameters())
    for name, parameter in tiny(ALL_LAYERS, dtype=torch.bfloat16).named_parameters():
        assert torch.equal(parameter, exact[name].to(torch.bfloat16))


def test_weights_keep_activations_of_the_order_of_one() -> None:
    deviations = {name: parameter.std().item() for name, parameter in tiny(ALL_LAYERS).named_parameters()}
    assert deviations["tokens.weight"] == pytest.approx(1, rel=0.05)
    assert deviations["head.weight"] == pytest.approx(64**-0.5, rel=0.05)
    assert deviations["layers.2.attention.output.weight"] == pytest.approx(64**-0.5, rel=0.05)
    assert deviations["layers.2.feed_forward.output.weight"] == pytest.approx(160**-0.5, rel=0.05)


def test_weights_need_no_gradient() -> None:
    assert not any(parameter.requires_grad for parameter in tiny(ALL_LAYERS).parameters())


def drawn(tokens: int) -> torch.Tensor:
    return torch.randn(tokens, 3, 16, generator=torch.Generator().manual_seed(1))


def test_positions_count_from_the_start_of_the_sequence_wherever_a_chunk_starts() -> None:
    x = drawn(10)
    whole = Rotation(16, range(10), CPU).apply(x)
    assert torch.equal(Rotation(16, range(4, 10), CPU).apply(x[4:]), whole[4:])


def test_the_first_token_is_not_turned() -> None:
    assert torch.equal(Rotation(16, range(1), CPU).apply(drawn(1)), drawn(1))


def test_each_pair_is_turned_by_its_own_angle() -> None:
    x = torch.zeros(1, 1, 16)
    x[0, 0, 3] = 1
    turned = Rotation(16, range(100_000, 100_001), CPU).apply(x)[0, 0]
    angle = 100_000 * ROTARY_BASE ** -(6 / 16)
    assert math.isclose(turned[3].item(), math.cos(angle), abs_tol=1e-6)
    assert math.isclose(turned[11].item(), math.sin(angle), abs_tol=1e-6)
    assert turned.count_nonzero() == 2


def test_products_of_queries_and_keys_depend_on_how_far_apart_they_are() -> None:
    query, key = drawn(2).split(1)

    def product(of_query: int, of_key: int) -> torch.Tensor:
        turned = [Rotation(16, range(at, at + 1), CPU).apply(x) for at, x in ((of_query, query), (of_key, key))]
        return (turned[0] * turned[1]).sum(2)

    torch.testing.assert_close(product(9, 4), product(1009, 1004), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(product(9, 4), product(9, 5), rtol=1e-3)


def test_lower_precision_stays_and_is_turned_in_fp32() -> None:
    x = drawn(5).to(torch.bfloat16)
    rotation = Rotation(16, range(5), CPU)
    assert torch.equal(rotation.apply(x), rotation.apply(x.float()).to(torch.bfloat16))


GPU = torch.device("cuda")

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 16

TOKENS, PRIOR_TOKENS = 8, 16

LOWER_RIGHT = 2


class Recorder(TorchDispatchMode):
    """Keeps the name and the arguments of every operator of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.attention: list[tuple[str, list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "attention" in str(func):
            self.attention.append((func.__name__, [tuple(a.shape) if isinstance(a, Tensor) else a for a in args]))
        return func(*args, **(kwargs or {}))


def on_gpu(dtype: torch.dtype, prior_tokens: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[Any]]]:
    """Return the operators of attention for a chunk on a GPU that has both fused kernels, with torch's limits."""
    monkeypatch.setattr(bias, "can_use_flash_attention", lambda params: params.query.dtype != torch.float32)
    monkeypatch.setattr(bias, "can_use_efficient_attention", lambda params: not params.enable_gqa)
    mask = chunk_mask(TOKENS, prior_tokens, GPU)
    with FakeTensorMode(), Recorder() as recorder:
        query = torch.empty(TOKENS, HEADS, HEAD_DIM, dtype=dtype, device=GPU)
        keys = torch.empty(prior_tokens + TOKENS, KV_HEADS, HEAD_DIM, dtype=dtype, device=GPU)
        assert chunk_attention(query, keys, keys, mask).shape == query.shape
    return recorder.attention


def test_a_gpu_runs_flash_attention_on_a_chunk_after_others_with_grouped_queries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ((name, arguments),) = on_gpu(torch.bfloat16, PRIOR_TOKENS, monkeypatch)
    assert name == "_scaled_dot_product_flash_attention.default"
    query, keys = (1, HEADS, TOKENS, HEAD_DIM), (1, KV_HEADS, PRIOR_TOKENS + TOKENS, HEAD_DIM)
    assert arguments == [query, keys, keys, 0.0, True]


def test_a_gpu_runs_the_memory_efficient_kernel_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    ((name, arguments),) = on_gpu(torch.float32, PRIOR_TOKENS, monkeypatch)
    assert name == "_efficient_attention_forward.default"
    assert [shape[2] for shape in arguments[:3]] == [HEADS] * 3
    assert arguments[3:] == [None] * 5 + [0.0, LOWER_RIGHT]


@pytest.mark.parametrize("device", [CPU, GPU])
@pytest.mark.parametrize(("tokens", "prior_tokens"), [(TOKENS, 0), (1, 0), (1, PRIOR_TOKENS)])
def test_a_first_chunk_and_a_single_token_need_no_mask(tokens: int, prior_tokens: int, device: torch.device) -> None:
    assert chunk_mask(tokens, prior_tokens, device) is None


@pytest.mark.parametrize(("tokens", "prior_tokens"), [(TOKENS, PRIOR_TOKENS), (2, 1), (5, 3), (1, 7), (6, 0)])
def test_the_mask_of_a_gpu_means_that_of_the_cpu(tokens: int, prior_tokens: int) -> None:
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(tokens, HEADS, HEAD_DIM, generator=generator)
    keys, values = torch.randn(2, prior_tokens + tokens, KV_HEADS, HEAD_DIM, generator=generator)
    here, there = (chunk_attention(query, keys, values, chunk_mask(tokens, prior_tokens, on)) for on in (CPU, GPU))
    assert torch.equal(here, there)


def test_chunks_one_after_another_mix_what_the_whole_prompt_does() -> None:
    generator = torch.Generator().manual_seed(2)
    query = torch.randn(12, HEADS, HEAD_DIM, generator=generator)
    keys, values = torch.randn(2, 12, KV_HEADS, HEAD_DIM, generator=generator)
    whole = chunk_attention(query, keys, values, None)
    parts = [
        chunk_attention(query[start:end], keys[:end], values[:end], chunk_mask(end - start, start, CPU))
        for start, end in ((0, 5), (5, 6), (6, 12))
    ]
    torch.testing.assert_close(torch.cat(parts), whole)
