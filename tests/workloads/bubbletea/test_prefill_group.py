import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.bubbletea.prefill_group import MemoryLedger, SharedGpuMemory


def test_what_is_reserved_is_given_back_in_parts_or_all_at_once() -> None:
    ledger = MemoryLedger(SharedGpuMemory(100, 30), 20)
    assert (ledger.largest_bytes, ledger.used_bytes) == (50, 50)
    ledger.reserve(1, 30)
    ledger.reserve(2, 20)
    assert (ledger.room_bytes, ledger.peak_bytes) == (0, 100)
    ledger.release(1, 10)
    assert ledger.room_bytes == 10
    ledger.release_all(1)
    ledger.release_all(1)
    assert (ledger.room_bytes, ledger.peak_bytes) == (30, 100)


def test_more_than_there_is_cannot_be_reserved_nor_given_back() -> None:
    ledger = MemoryLedger(SharedGpuMemory(100, 30), 20)
    with pytest.raises(ValueError, match="request 1: 51 bytes where 50 are free"):
        ledger.reserve(1, 51)
    ledger.reserve(1, 5)
    with pytest.raises(ValueError, match="request 1: gives back 6 bytes, 1 more than it holds"):
        ledger.release(1, 6)


@pytest.mark.parametrize(
    ("total", "training", "line"), [(10, -1, "training_bytes: -1"), (10, 11, "total_bytes: 10 is less")]
)
def test_a_memory_that_cannot_be_is_refused_by_field(total: int, training: int, line: str) -> None:
    with pytest.raises(ValueError, match=f"^{line}"):
        SharedGpuMemory(total, training)


def test_weights_that_do_not_fit_beside_training_are_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match=r"71 bytes of weights .* beside the 30 .* of 100: take a deeper pipeline"):
        MemoryLedger(SharedGpuMemory(100, 30), 71)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=40))
def test_reservations_never_exceed_the_memory(steps: list[tuple[int, int]]) -> None:
    ledger = MemoryLedger(SharedGpuMemory(100, 10), 10)
    held: dict[int, int] = {}
    for request, size_bytes in steps:
        if size_bytes % 7 == 0:
            ledger.release_all(request)
            held.pop(request, None)
        elif size_bytes <= ledger.room_bytes:
            ledger.reserve(request, size_bytes)
            held[request] = held.get(request, 0) + size_bytes
        assert ledger.used_bytes == 20 + sum(held.values()) <= ledger.peak_bytes <= 100
