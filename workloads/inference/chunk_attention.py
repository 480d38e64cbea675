"""Causal grouped-query attention of a chunk to itself and to all tokens before it, by torch's fused kernels."""

import torch
from torch import Tensor
from torch.nn import functional


def chunk_mask(tokens: int, prior_tokens: int, device: torch.device) -> Tensor | None:
    """Return what a chunk of ``tokens`` after ``prior_tokens`` attends to, as ``chunk_attention`` takes it.

    None for a first chunk, which is causal, and for a single token, which attends to all. Otherwise it is, on the CPU,
    a matrix (tokens, prior tokens + tokens) that is true where a token attends to a token. On a GPU it is torch's
    ``causal_lower_right``, which names the matrix without making it: FlashAttention takes no matrix, and the kernel
    that does takes no grouped queries, so that all scores would be written to memory in fp32.
    """
    if not prior_tokens or tokens == 1:
        return None
    end = prior_tokens + tokens
    if device.type == "cuda":
        # It loads torch's compiler, which takes a second, so processes that compute on the CPU do without.
        from torch.nn.attention.bias import causal_lower_right  # noqa: PLC0415

        return causal_lower_right(tokens, end)
    return torch.ones(tokens, end, dtype=torch.bool, device=device).tril(prior_tokens)


def chunk_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mixed values, of the shape of ``query``, (tokens, heads, head_dim).

    ``keys`` and ``values``, (prior tokens + tokens, kv_heads, head_dim), are those of the whole sequence so far.
    """
    grouped = True
    if query.is_cuda and query.dtype == torch.float32:
        # FlashAttention takes no fp32, and the other fused kernel no grouped queries: repeat each key and value head.
        queries_per_key = query.shape[1] // keys.shape[1]
        keys, values = (part.repeat_interleave(queries_per_key, dim=1) for part in (keys, values))
        grouped = False
    by_head = [part.transpose(0, 1).unsqueeze(0) for part in (query, keys, values)]
    mixed = functional.scaled_dot_product_attention(
        by_head[0],
        by_head[1],
        by_head[2],
        attn_mask=mask,
        is_causal=len(query) == len(keys),
        enable_gqa=grouped,
    )
    return mixed.squeeze(0).transpose(0, 1)
