"""A limit on the address space is lived with, or refused in a line."""

import os
import resource

import pytest

from wanbed.runner.cli.address_space import fit_address_space
from wanbed.testbed.kernel.missing import MissingError

NAMES = ("ARROW_DEFAULT_MEMORY_POOL", "OPENBLAS_NUM_THREADS")


@pytest.fixture(autouse=True)
def _without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        # Set first, so that it is unset again after the test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def settings() -> list[str | None]:
    return [os.environ.get(name) for name in NAMES]


def limit(monkeypatch: pytest.MonkeyPatch, limit_bytes: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit_bytes, limit_bytes))


def test_without_a_limit_libraries_do_as_they_like(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, resource.RLIM_INFINITY)
    fit_address_space()
    assert settings() == [None, None]


def test_below_a_limit_libraries_reserve_little_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 2 << 30)
    os.environ["OPENBLAS_NUM_THREADS"] = "4"
    fit_address_space()
    assert settings() == ["system", "4"]


def test_a_limit_that_is_too_low_for_any_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 300_000 << 10)
    with pytest.raises(MissingError, match=r"takes 800000 KiB of address space, ulimit -v allows 300000: raise it$"):
        fit_address_space()
