import pytest

from testbed.virtual_time.kernel import kernel_options
from testbed.virtual_time.kernel.kernel_options import UNWANTED, WANTED, configuration_hash


def test_no_option_is_listed_twice_or_both_ways() -> None:
    assert len(set(WANTED + UNWANTED)) == len(WANTED) + len(UNWANTED)


def test_another_option_makes_another_kernel_and_another_order_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = configuration_hash()
    monkeypatch.setattr(kernel_options, "WANTED", WANTED[::-1])
    assert configuration_hash() == ours
    monkeypatch.setattr(kernel_options, "WANTED", WANTED[1:])
    assert configuration_hash() != ours
