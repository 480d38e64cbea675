import importlib.util

import pytest

from wanbed.ground.strict_model import InputError
from wanbed.runner.rack.cluster import WITHOUT_AUTH, connected
from wanbed.testbed.kernel.missing import MissingError


def refused(address: str, kind: type[Exception] = MissingError) -> str:
    with pytest.raises(kind) as refusal, connected(address):
        pass
    return str(refusal.value)


@pytest.fixture(autouse=True)
def with_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.delenv(WITHOUT_AUTH, raising=False)


@pytest.mark.parametrize("address", ["", "10.0.0.1", "10.0.0.1:", ":6379", "10.0.0.1:0", "10.0.0.1:port", "ray://a:b"])
def test_what_is_no_address_is_refused(address: str) -> None:
    assert "give HOST:PORT of the cluster's head" in refused(address, InputError)


def test_without_ray_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("wanbed.runner.rack.cluster.find_spec", lambda name: None if name == "ray" else found(name))
    assert refused("127.0.0.1:1") == "Ray is not installed: pip install 'wanbed[rack]'"


@pytest.mark.parametrize(("mode", "said"), [(None, "not set"), ("disabled", "disabled")])
def test_without_token_authentication_one_line_says_how_to_turn_it_on(
    monkeypatch: pytest.MonkeyPatch, mode: str | None, said: str
) -> None:
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_AUTH_MODE")
    if mode is not None:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    line = refused("127.0.0.1:1")
    assert line.startswith(f"--rack: RAY_AUTH_MODE is {said}, and whoever reaches a cluster")
    assert "ray get-auth-token --generate" in line
    monkeypatch.setenv(WITHOUT_AUTH, "1")
    assert "nobody answers" in refused("127.0.0.1:1")


def test_an_address_that_nobody_answers_is_named() -> None:
    pytest.importorskip("ray")
    assert refused("127.0.0.1:1") == (
        "--rack 127.0.0.1:1: nobody answers (Connection refused): give HOST:PORT as `ray start --head` printed it"
    )
