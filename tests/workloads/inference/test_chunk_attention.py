"""Which kernel a GPU would run is shown by tensors without content, whose operators are recorded. No GPU is needed."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import bias
from torch.utils._python_dispatch import TorchDispatchMode

from wanbed.workloads.inference.chunk_attention import chunk_attention, chunk_mask

CPU, GPU = torch.device("cpu"), torch.device("cuda")
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
