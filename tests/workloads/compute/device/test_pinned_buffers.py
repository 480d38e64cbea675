from tests.support.workloads.hostile_gpu.gpu import HostileGpu
from wanbed.workloads.compute.device.pinned_buffers import PinnedBuffers

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
