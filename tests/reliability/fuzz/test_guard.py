import pytest

from tests.reliability.fuzz import guard
from tests.reliability.fuzz.guard import Memory, TooLongError, bounded


@bounded()
def spin() -> None:
    while True:
        pass


def test_what_does_not_end_is_stopped_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LONGEST_SECONDS", 0.05)
    with pytest.raises(TooLongError):
        spin()


def test_memory_that_is_given_back_counts_too() -> None:
    memory = Memory()
    bytearray(b"\1") * (32 << 20)
    assert memory.most_bytes() >= 30 << 20
