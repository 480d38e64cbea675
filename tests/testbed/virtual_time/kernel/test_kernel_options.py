import pytest

from wanbed.testbed.virtual_time.kernel import kernel_options
from wanbed.testbed.virtual_time.kernel.kernel_options import (
    WANTED,
    WANTED_BEFORE_6_10,
    configuration,
    configuration_hash,
)


def test_no_option_is_listed_twice() -> None:
    assert len(set(WANTED)) == len(WANTED)


def test_every_option_is_built_in() -> None:
    assert configuration().splitlines() == [f"CONFIG_{option}=y" for option in WANTED + WANTED_BEFORE_6_10]


def test_what_takes_time_to_build_and_no_guest_needs_is_not_asked_for() -> None:
    assert not {"MODULES", "BLOCK", "BPF_SYSCALL", "CGROUPS", "CRYPTO", "IO_URING", "KALLSYMS", "SWAP"} & set(WANTED)


@pytest.mark.parametrize("options", ["WANTED", "WANTED_BEFORE_6_10", "COMPILER_OPTIONS"])
def test_configuration_hash_depends_on_every_option(monkeypatch: pytest.MonkeyPatch, options: str) -> None:
    ours = configuration_hash()
    monkeypatch.setattr(kernel_options, options, getattr(kernel_options, options)[1:])
    assert configuration_hash() != ours


def test_configuration_hash_does_not_depend_on_the_order_of_options(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = configuration_hash()
    monkeypatch.setattr(kernel_options, "WANTED", WANTED[::-1])
    assert configuration_hash() == ours
