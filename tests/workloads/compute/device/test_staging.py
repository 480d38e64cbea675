from collections.abc import Iterator

import pytest
import torch

from tests.support.workloads.hostile_gpu.gpu import HostileGpu, hostile_device
from wanbed.workloads.compute.device.staging import DirectStaging, PinnedBuffers, PinnedStaging, Staged, create_staging
from wanbed.workloads.compute.device.torch_device import CpuDevice, as_bytes

MIB = 1 << 20


class Endless(HostileGpu):
    """A GPU whose pinned memory is not made, only counted."""

    def pinned(self, size_bytes: int):  # type: ignore[no-untyped-def]
        self.waits.append("pinned")
        return self.scratch(1)


def test_a_buffer_that_was_given_back_is_taken_again() -> None:
    gpu = HostileGpu()
    buffers = PinnedBuffers(gpu)
    one, other = buffers.take(48), buffers.take(48)
    assert one.data_ptr() != other.data_ptr()
    buffers.give_back(one)
    assert buffers.take(48) is one
    assert gpu.waits == ["pinned"] * 2


def test_reserved_buffers_are_not_made_when_they_are_taken() -> None:
    gpu = HostileGpu()
    buffers = PinnedBuffers(gpu)
    buffers.reserve(48, 3)
    gpu.waits.clear()
    assert len({buffers.take(48).data_ptr() for _ in range(3)}) == 3
    assert gpu.waits == []
    buffers.take(48)
    assert gpu.waits == ["pinned"]


def test_no_more_than_a_gibibyte_is_reserved() -> None:
    gpu = Endless()
    PinnedBuffers(gpu).reserve(96 * MIB, 100)
    assert len(gpu.waits) == 10


def never(payload: memoryview) -> None:
    raise AssertionError("the payload is the caller's")


def elements() -> torch.Tensor:
    return torch.arange(12, dtype=torch.float32).view(3, 4)


def address(data: memoryview) -> int:
    return torch.frombuffer(data, dtype=torch.uint8).data_ptr()


@pytest.fixture
def gpu() -> Iterator[HostileGpu]:
    with HostileGpu() as gpu:
        yield gpu


def on_gpu(gpu: HostileGpu) -> torch.Tensor:
    return elements().to(gpu.torch_device)


def test_on_the_cpu_the_tensor_itself_is_sent_and_the_payload_itself_computed_from() -> None:
    staging = create_staging(CpuDevice(), {48: 2})
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


def test_a_gpu_copy_has_the_right_bytes_after_waiting(gpu: HostileGpu) -> None:
    staging = PinnedStaging(gpu)
    copy = staging.outgoing(on_gpu(gpu))
    assert gpu.copied_bytes == []
    assert bytes(copy.payload()) == bytes(as_bytes(elements()))
    assert gpu.copied_bytes == [48]


def test_a_non_contiguous_tensor_is_sent_contiguously(gpu: HostileGpu) -> None:
    staging = PinnedStaging(gpu)
    assert bytes(staging.outgoing(on_gpu(gpu).t()).payload()) == bytes(as_bytes(elements().t().contiguous()))


def test_kernels_wait_for_the_copy_before_the_payload_is_released(gpu: HostileGpu) -> None:
    staging = PinnedStaging(gpu)
    payload = as_bytes(gpu.pinned(48))
    payload[:] = as_bytes(elements())
    let_go: list[memoryview] = []
    copy = staging.incoming(payload, torch.float32, let_go.append)
    staging.settle()
    assert let_go == []
    copy.let_compute_wait()
    assert copy.tensor.tolist() == elements().flatten().tolist()
    staging.settle()
    staging.settle()
    assert [one is payload for one in let_go] == [True]


def test_a_copy_to_the_device_waits_for_no_kernel(gpu: HostileGpu) -> None:
    staging = PinnedStaging(gpu, {48: 1})
    payload = staging.receive_buffer(48)
    assert payload is not None
    gpu.keep_busy(1_000_000)
    staging.incoming(payload, torch.float32, never).done.wait()  # type: ignore[attr-defined]
    assert gpu.copied_bytes == [48]
    assert gpu.computing


def test_a_payload_outside_of_pinned_memory_makes_the_host_wait(gpu: HostileGpu) -> None:
    staging = PinnedStaging(gpu)
    staging.incoming(memoryview(bytearray(48)), torch.float32, lambda payload: None)
    assert gpu.waits == ["copy"]


def test_a_sum_goes_back_to_the_tensor_it_came_from(gpu: HostileGpu) -> None:
    staging = PinnedStaging(gpu)
    tensor = on_gpu(gpu)
    copy = staging.outgoing(tensor)
    torch.frombuffer(copy.payload(), dtype=torch.float32).mul_(2)
    staging.take_back(tensor, copy)
    assert tensor.tolist() == (elements() * 2).tolist()


def test_every_byte_staged_is_counted_with_the_time_its_copy_took(gpu: HostileGpu) -> None:
    staging = PinnedStaging(gpu)
    for _ in range(2):
        staging.outgoing(on_gpu(gpu)).payload()
    staging.incoming(memoryview(bytearray(400)), torch.float32, lambda payload: None).done.wait()  # type: ignore[attr-defined]
    staging.settle()
    assert staging.to_host == Staged(96, pytest.approx(2 * 1_048))
    assert staging.to_device == Staged(400, pytest.approx(1_400))


def test_only_messages_of_a_gpu_arrive_in_pinned_memory(gpu: HostileGpu) -> None:
    staging = PinnedStaging(gpu, {4096: 2, 2048: 1})
    for size_bytes in (4096, 2048):
        buffer = staging.receive_buffer(size_bytes)
        assert buffer is not None
        assert buffer.nbytes == size_bytes
    # Chunks that are relayed and parts of gradients stay on the host.
    assert staging.receive_buffer(512) is None
    assert gpu.waits == ["pinned"] * 3


def test_a_gpu_stages_through_pinned_memory(gpu: HostileGpu) -> None:
    assert isinstance(create_staging(hostile_device(gpu), {48: 2}), PinnedStaging)
