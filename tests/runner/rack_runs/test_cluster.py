import importlib.util
from typing import Any

import pytest

from wanbed.ground.errors import InputError, MissingError
from wanbed.runner.rack_runs.cluster import WITHOUT_AUTH, connected, each_once, nodes_of


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
    monkeypatch.setattr(
        "wanbed.runner.rack_runs.cluster.find_spec", lambda name: None if name == "ray" else found(name)
    )
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


def entry(hostname: str, address: str, **more: Any) -> dict[str, Any]:
    return {
        "NodeID": f"id-{address}",
        "Alive": True,
        "NodeManagerAddress": address,
        "NodeManagerHostname": hostname,
        "NodeName": address,
        "Resources": {"CPU": 8.0, "GPU": 2.0},
        "Labels": {"wanbed.datacenter": "east"},
        **more,
    }


def test_machines_are_listed_by_name_with_what_ray_counts() -> None:
    (first, second) = nodes_of([entry("rack10", "10.0.0.1"), entry("rack9", "10.0.0.2", Resources={}, Labels=None)])
    assert (first.name, first.datacenter, first.cpus, first.carries_hosts) == ("rack9", None, 0, False)
    assert (second.name, second.datacenter, second.cpus, second.gpus) == ("rack10", "east", 8, 2)


def test_a_name_that_ray_was_given_comes_before_the_hostname() -> None:
    (node,) = nodes_of([entry("vm", "10.0.0.1", NodeName="front")])
    assert node.name == "front"


def test_machines_of_one_hostname_are_told_apart_by_their_addresses() -> None:
    assert [
        node.name for node in nodes_of([entry("vm", "10.0.0.10"), entry("vm", "10.0.0.9"), entry("x", "1.1.1.1")])
    ] == [
        "10.0.0.9",
        "10.0.0.10",
        "x",
    ]


def test_machines_that_have_left_are_not_listed() -> None:
    assert nodes_of([entry("rack1", "10.0.0.1", Alive=False)]) == []


def test_a_machine_of_any_name_is_listed_by_one_that_can_be_shown() -> None:
    names = ["rack\x1b[31m\u202e", "x" * 5000, "9" * 5000, "rack²", "rack\u0661"]
    listed = nodes_of([entry(name, f"10.0.0.{number}") for number, name in enumerate(names, start=1)])
    assert {node.name for node in listed} == {
        "rack\\x1b[31m\\u202e",
        f"{'x' * 60}...",
        f"{'9' * 60}...",
        "rack²",
        "rack\u0661",
    }


def test_a_machine_where_ray_was_started_again_is_waited_for_until_ray_has_noticed() -> None:
    ended, again = entry("rack1", "10.0.0.1", NodeID="ended"), entry("rack1", "10.0.0.1", NodeID="again")
    listed = iter([[ended, again], [again, ended], [{**ended, "Alive": False}, again]])
    lines: list[str] = []
    nodes = each_once(lambda: nodes_of(next(listed)), lines.append, interval_s=0)
    assert [(node.name, node.node_id) for node in nodes] == [("rack1", "again")]
    assert lines == ["Ray lists 10.0.0.1 twice: waiting until it has noticed that the first node there has ended"]


def test_nodes_that_cannot_be_told_apart_are_refused() -> None:
    both = [entry("rack1", "10.0.0.1"), entry("rack1", "10.0.0.1")]
    with pytest.raises(MissingError, match=r"^Ray lists 10\.0\.0\.1 twice: call `ray stop` there"):
        each_once(lambda: nodes_of(both), lambda _: None, patience_s=0, interval_s=0)


def test_two_nodes_of_one_address_with_names_of_their_own_are_two_machines() -> None:
    named = [entry("rack1", "10.0.0.1", NodeName=name) for name in ("a", "b")]
    assert [node.name for node in each_once(lambda: nodes_of(named), lambda _: None)] == ["a", "b"]
