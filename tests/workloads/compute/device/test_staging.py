import pytest
import torch

from tests.support.workloads.fake_gpu import FakeGpu, FakeGpuDevice
from workloads.compute.device.staging import DirectStaging, PinnedStaging, Staged, create_staging
from workloads.compute.device.torch_device import CpuDevice
from workloads.compute.tensor_bytes import as_bytes


def never(payload: memoryview) -> None:
    raise AssertionError("the payload is the caller's")


def elements() -> torch.Tensor:
    return torch.arange(12, dtype=torch.float32).view(3, 4)


def address(data: memoryview) -> int:
    return torch.frombuffer(data, dtype=torch.uint8).data_ptr()


def test_on_the_cpu_the_tensor_itself_is_sent_and_the_payload_itself_computed_from() -> None:
    staging = create_staging(CpuDevice())
    assert isinstance(staging, DirectStaging)
    tensor, payload = elements(), memoryview(bytearray(as_bytes(elements())))
    sent = staging.outgoing(tensor)
    assert address(sent.payload()) == tensor.data_ptr()
    received = staging.incoming(payload, torch.float32, never)
    assert received.tensor.data_ptr() == address(payload)
    staging.take_back(tensor, sent)
    staging.settle()
    assert (staging.to_host, staging.to_device) == (Staged(), Staged())
    assert staging.receive_buffer(4096) is None
    assert (staging.overlaps, staging.keeps_payload) == (False, True)


def test_a_gpu_copy_has_the_right_bytes_after_waiting() -> None:
    gpu = FakeGpu()
    staging = PinnedStaging(gpu)
    copy = staging.outgoing(elements())
    assert gpu.copied_bytes == []
    assert bytes(copy.payload()) == bytes(as_bytes(elements()))
    assert gpu.copied_bytes == [48]


def test_a_non_contiguous_tensor_is_sent_contiguously() -> None:
    staging = PinnedStaging(FakeGpu())
    assert bytes(staging.outgoing(elements().t()).payload()) == bytes(as_bytes(elements().t().contiguous()))


def test_kernels_wait_for_the_copy_before_the_payload_is_released() -> None:
    staging = PinnedStaging(FakeGpu())
    payload = memoryview(bytearray(as_bytes(elements())))
    let_go: list[memoryview] = []
    copy = staging.incoming(payload, torch.float32, let_go.append)
    staging.settle()
    assert torch.isnan(copy.tensor).all()
    assert let_go == []
    copy.let_compute_wait()
    assert torch.equal(copy.tensor.view(3, 4), elements())
    staging.settle()
    staging.settle()
    assert [one is payload for one in let_go] == [True]


def test_pinned_buffers_are_used_again_once_released() -> None:
    gpu = FakeGpu()
    staging = PinnedStaging(gpu)
    for _ in range(3):
        copy = staging.outgoing(elements())
        copy.payload()
        copy.release()
    assert gpu.pinned_buffers == 1
    one, other = staging.outgoing(elements()), staging.outgoing(elements() + 1)
    assert address(one.payload()) != address(other.payload())
    assert gpu.pinned_buffers == 2


def test_a_sum_goes_back_to_the_tensor_it_came_from() -> None:
    staging = PinnedStaging(FakeGpu())
    tensor = elements()
    copy = staging.outgoing(tensor)
    torch.frombuffer(copy.payload(), dtype=torch.float32).mul_(2)
    staging.take_back(tensor, copy)
    assert torch.equal(tensor, elements() * 2)


def test_every_byte_staged_is_counted_with_the_time_its_copy_took() -> None:
    staging = PinnedStaging(FakeGpu())
    for _ in range(2):
        staging.outgoing(elements()).payload()
    staging.incoming(memoryview(bytearray(400)), torch.float32, lambda payload: None).let_compute_wait()
    staging.settle()
    assert staging.to_host == Staged(96, pytest.approx(2 * 1_048))
    assert staging.to_device == Staged(400, pytest.approx(1_400))


def test_payloads_of_a_gpu_arrive_in_pinned_memory() -> None:
    gpu = FakeGpu()
    buffer = PinnedStaging(gpu).receive_buffer(4096)
    assert buffer is not None
    assert buffer.nbytes == 4096
    assert gpu.pinned_buffers == 1


def test_a_gpu_stages_through_pinned_memory() -> None:
    assert isinstance(create_staging(FakeGpuDevice()), PinnedStaging)
