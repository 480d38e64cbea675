"""How CUDA is called. What it does then only a GPU can show."""

import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from wanbed.workloads.compute.device.device_runtime import CudaRuntime

MIB = 1 << 20


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What CUDA is asked for, in order."""
    asked: list[tuple[Any, ...]] = []

    class Event:
        def __init__(self, **how: bool) -> None:
            asked.append(("event", how))

    def register(pointer: int, size_bytes: int, flags: int) -> int:
        asked.append(("register", pointer, size_bytes, flags))
        return 0

    def unregister(pointer: int) -> int:
        asked.append(("unregister", pointer))
        return 0

    properties = SimpleNamespace(uuid="0", name="a GPU")
    cudart = SimpleNamespace(cudaHostRegister=register, cudaHostUnregister=unregister)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cudart)
    monkeypatch.setattr(torch.cuda, "check_error", _refuse)
    return asked


def _refuse(error: int) -> None:
    if error:
        raise RuntimeError(f"CUDA error {error}")


def test_a_thread_that_waits_for_an_event_sleeps(calls: list[tuple[Any, ...]]) -> None:
    CudaRuntime(torch.device("cuda", 0)).event()
    assert calls == [("event", {"enable_timing": True, "blocking": True})]


def test_pinned_memory_has_exactly_the_size_that_was_asked_for(calls: list[tuple[Any, ...]]) -> None:
    size_bytes = 33 * MIB + 5
    tensor = CudaRuntime(torch.device("cuda", 0)).pinned(size_bytes)
    assert calls == [("register", tensor.data_ptr(), size_bytes, 0)]
    assert (tensor.nbytes, tensor.dtype) == (size_bytes, torch.uint8)
    tensor.fill_(7)


def test_pages_are_released_when_their_last_tensor_is_freed(calls: list[tuple[Any, ...]]) -> None:
    tensor = CudaRuntime(torch.device("cuda", 0)).pinned(4096)
    pointer = tensor.data_ptr()
    view = tensor[:8].view(torch.float32).numpy()
    del tensor
    gc.collect()
    assert [call[0] for call in calls] == ["register"]
    del view
    gc.collect()
    assert calls[1:] == [("unregister", pointer)]


def test_pages_that_cannot_be_locked_are_an_error(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda.cudart(), "cudaHostRegister", lambda *_: 2)
    with pytest.raises(RuntimeError, match="CUDA error 2"):
        CudaRuntime(torch.device("cuda", 0)).pinned(4096)
    assert calls == []
