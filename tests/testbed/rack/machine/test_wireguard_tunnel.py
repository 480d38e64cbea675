"""Keys of machines, and how a machine configures WireGuard for the others."""

import base64
import shutil
from configparser import ConfigParser
from pathlib import Path

import pytest

from wanbed.ground.errors import MissingError
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.rack.machine.wireguard_tunnel import make_key_pair, missing_for_tunnel, tunnel_configuration
from wanbed.testbed.rack.machine_plan import WIREGUARD, Underlay, first_vni, plan_machines

MACHINE_OF = {"east-0": "a", "east-1": "b", "west-0": "c"}
TOPOLOGY = resolve_topology(
    TopologySpec.model_validate(
        {
            "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "5ms"},
        }
    )
)
CARDS = {
    name: Underlay(f"192.0.2.{number}", "eth0", 1500, WIREGUARD, f"{name}{name}=")
    for number, name in enumerate("abc", 1)
}
PLANS = plan_machines(TOPOLOGY, 7, first_vni(7), MACHINE_OF, CARDS)


def test_each_other_machine_is_a_peer_at_its_card_that_may_send_from_its_own_address_only() -> None:
    own, *peers = tunnel_configuration(PLANS["a"], "secret=").split("[Peer]")
    assert own == "[Interface]\nPrivateKey = secret=\nListenPort = 14790\n"
    read = []
    for peer in peers:
        parser = ConfigParser()
        parser.read_string(f"[Peer]{peer}")
        read.append(dict(parser["Peer"]))
    assert {(each["publickey"], each["endpoint"], each["allowedips"]) for each in read} == {
        ("bb=", "192.0.2.2:14790", f"{PLANS['b'].tunnel_address}/32"),
        ("cc=", "192.0.2.3:14790", f"{PLANS['c'].tunnel_address}/32"),
    }


def test_every_machine_has_an_address_of_its_own_in_the_tunnel_and_110_bytes_less() -> None:
    assert len({plan.tunnel_address for plan in PLANS.values()}) == len(PLANS)
    assert {plan.mtu_bytes for plan in PLANS.values()} == {1390}
    assert {plan.carrying_interface for plan in PLANS.values()} == {"wanbed-wg"}


def test_keys_are_two_of_32_bytes_and_drawn_anew() -> None:
    one, other = make_key_pair(), make_key_pair()
    assert {len(base64.b64decode(key)) for pair in (one, other) for key in (pair.private, pair.public)} == {32}
    assert len({one.private, one.public, other.private, other.public}) == 4


def test_a_key_pair_is_not_printed() -> None:
    pair = make_key_pair()
    assert pair.private not in repr(pair)


def test_a_machine_without_the_programs_says_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program, **_: None if program == "wireguard-go" else program)
    assert missing_for_tunnel() == "no wireguard-go for wireguard: apt install wireguard-go"
    with pytest.raises(MissingError, match=r"^no wireguard-go for wireguard: apt install wireguard-go$"):
        make_key_pair()


def test_a_machine_without_tun_says_how_to_load_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("wanbed.testbed.rack.machine.wireguard_tunnel.TAP_DEVICE", tmp_path / "tun")
    assert missing_for_tunnel() == f"no {tmp_path}/tun for wireguard: modprobe tun"
