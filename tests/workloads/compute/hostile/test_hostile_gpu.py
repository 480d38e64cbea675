"""What the GPU that the CPU plays does as CUDA does."""

import math
from collections.abc import Iterator

import pytest
import torch

from tests.support.workloads.hostile_gpu.gpu import HostileGpu
from tests.support.workloads.hostile_gpu.streams import Order


@pytest.fixture
def gpu() -> Iterator[HostileGpu]:
    with HostileGpu() as gpu:
        yield gpu


def peek(tensor: torch.Tensor) -> list[float]:
    """Return what lies in the memory now, without waiting."""
    return tensor.view(-1).numpy().tolist()


def test_a_kernel_runs_only_when_the_host_waits(gpu: HostileGpu) -> None:
    ones = torch.ones(3, device=gpu.torch_device)
    assert gpu.computing
    gpu.compute_stream().record(done := gpu.event())
    done.wait()
    assert not gpu.computing
    assert (ones + ones).tolist() == [2, 2, 2]


def test_a_result_is_nan_until_its_kernel_has_run() -> None:
    with HostileGpu() as gpu:
        result = torch.ones(2, device=gpu.torch_device) * 2
    assert all(math.isnan(value) for value in peek(result))


def test_freed_memory_is_given_to_the_next_tensor_of_the_stream_alone(gpu: HostileGpu) -> None:
    first = torch.ones(64, device=gpu.torch_device)
    address = first.data_ptr()
    del first
    with gpu.use(gpu.new_stream()):
        assert torch.ones(64, device=gpu.torch_device).data_ptr() != address
    assert torch.ones(64, device=gpu.torch_device).data_ptr() == address


def test_memory_that_another_stream_uses_is_given_again_only_after_that_stream(gpu: HostileGpu) -> None:
    copies, compute = gpu.new_stream(), gpu.compute_stream()
    received = gpu.empty(64, torch.float32, filled_on=copies, used_on=compute)
    address = received.data_ptr()
    gpu.keep_busy(1_000)
    del received
    other = gpu.empty(64, torch.float32, filled_on=copies, used_on=compute)
    assert other.data_ptr() != address
    compute.record(done := gpu.event())
    done.wait()
    assert gpu.empty(64, torch.float32, filled_on=copies, used_on=compute).data_ptr() == address


def test_the_time_between_events_is_an_error_until_both_have_passed(gpu: HostileGpu) -> None:
    before, after = gpu.event(), gpu.event()
    gpu.compute_stream().record(before)
    gpu.keep_busy(5_000)
    gpu.compute_stream().record(after)
    with pytest.raises(RuntimeError, match="not ready"):
        after.since_ns(before)
    after.wait()
    assert after.since_ns(before) == pytest.approx(5_000)


def test_kernels_refuse_tensors_of_the_host(gpu: HostileGpu) -> None:
    on_gpu = torch.ones(2, device=gpu.torch_device)
    with pytest.raises(RuntimeError, match="same device"):
        on_gpu + torch.ones(2)
    with pytest.raises(TypeError, match="to numpy"):
        on_gpu.numpy()
    assert (on_gpu.device, on_gpu.cpu().device) == (gpu.torch_device, torch.device("cpu"))


@pytest.mark.parametrize(
    ("look", "waits"),
    [
        (lambda tensor: tensor.sum().item(), ["value"]),
        (lambda tensor: tensor.tolist(), ["copy"]),
        (lambda tensor: tensor.copy_(torch.zeros(2)), ["copy"]),
        (lambda tensor: tensor.add_(1), []),
    ],
)
def test_operators_that_make_the_host_wait_are_counted(gpu: HostileGpu, look: object, waits: list[str]) -> None:
    tensor = torch.ones(2, device=gpu.torch_device)
    look(tensor)  # type: ignore[operator]
    assert gpu.waits == waits


@pytest.mark.parametrize(("order", "copied"), [(Order.LAZY, 0), (Order.EAGER, 1), (Order.COPIES_FIRST, 1)])
def test_orders_differ_in_what_the_other_streams_do_while_the_host_waits(order: Order, copied: int) -> None:
    with HostileGpu(order) as gpu:
        source, copies = torch.ones(2, device=gpu.torch_device), gpu.new_stream()
        copies.copy(gpu.scratch(8).view(torch.float32), source)
        gpu.compute_stream().record(done := gpu.event())
        done.passed()
        done.wait()
        assert len(gpu.copied_bytes) == copied


def test_a_wait_for_what_never_comes_fails(gpu: HostileGpu) -> None:
    with pytest.raises(AssertionError, match="never recorded"):
        gpu.event().wait()
