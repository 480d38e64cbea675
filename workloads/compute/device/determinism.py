"""Choose between torch's fastest kernels and those that give the same bits in every run. The choice is the process's.

Deterministic kernels make a GPU slower: cuDNN's attention is refused, and FlashAttention's backward sums in a fixed
order.
"""

import os

import torch
import torch.utils.deterministic


def choose_kernels(*, deterministic: bool) -> None:
    """Let torch use any kernel or, if ``deterministic``, refuse those that may give other bits in another run."""
    if deterministic:
        # cuBLAS sums in a fixed order only with a fixed workspace. Set it before the first use of cuBLAS.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)
    # Filling new tensors with NaN is torch's aid for finding reads of undefined memory. It would be part of the spans.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def kernels_are_deterministic() -> bool:
    """Return whether torch refuses kernels that may give other bits in another run."""
    return torch.are_deterministic_algorithms_enabled()
