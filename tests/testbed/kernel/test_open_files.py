"""As many files may be open as a guest takes, or a line says how many that are."""

import resource

import pytest

from wanbed.ground.errors import MissingError
from wanbed.testbed.kernel.open_files import allow_open_files


def test_too_few_open_files_are_refused_with_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (24, 128))
    with pytest.raises(
        MissingError, match=r"the gateway guest takes 256 open files at least, and ulimit -n allows 128: raise it$"
    ):
        allow_open_files("the gateway guest", 16_384, least=256)


def test_as_many_open_files_are_allowed_as_the_user_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (24, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: allowed.append(limits))
    allow_open_files("the gateway guest", 16_384, least=256)
    assert allowed == [(4096, 4096)]
