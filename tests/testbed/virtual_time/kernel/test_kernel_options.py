import pytest

from testbed.virtual_time.kernel import kernel_options
from testbed.virtual_time.kernel.kernel_options import UNWANTED, WANTED, configuration_hash


def test_no_option_is_listed_twice_or_both_ways() -> None:
    assert len(set(WANTED + UNWANTED)) == len(WANTED) + len(UNWANTED)


def test_configuration_hash_depends_on_options_but_not_on_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = configuration_hash()
    monkeypatch.setattr(kernel_options, "WANTED", WANTED[::-1])
    assert configuration_hash() == ours
    monkeypatch.setattr(kernel_options, "WANTED", WANTED[1:])
    assert configuration_hash() != ours
