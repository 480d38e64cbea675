from dataclasses import replace

import pytest

from wanbed.ground.errors import MissingError
from wanbed.testbed.network.shared_rate import Timers
from wanbed.testbed.rack.driver.leasing import check_alike, check_lacks_nothing, naming, timers_of, underlays_of
from wanbed.testbed.rack.machine.facts import Card, MachineFacts, sources_hash
from wanbed.testbed.rack.machine_plan import Underlay

CARD = Card("eth0", "192.0.2.10", "virtio_net", None, 1500)
FACTS = MachineFacts(
    hostname="here",
    boot_id="1",
    kernel="6.1.0",
    version="0.1.0",
    sources=sources_hash(),
    cpu="Fast",
    cores=8,
    memory_bytes=2**34,
    governor=None,
    load_average=(0.0, 0.0, 0.0),
    card=CARD,
    gpus=(),
    missing=(),
)


def lines_of(**found: MachineFacts) -> list[str]:
    said: list[str] = []
    check_alike(found, said.append)
    return said


def test_machines_that_are_alike_need_no_word() -> None:
    assert lines_of(node0=FACTS, node1=replace(FACTS, hostname="there", boot_id="2")) == []


def test_in_what_machines_differ_is_said() -> None:
    other = replace(FACTS, kernel="6.12.0", card=replace(CARD, speed_bps=10**10))
    assert lines_of(node0=FACTS, node1=other, node2=FACTS) == [
        "the machines differ in their kernel: 6.1.0 on node0, node2; 6.12.0 on node1",
        "the machines differ in their card's speed: unknown on node0, node2; 10000000000 on node1",
    ]


def test_a_machine_with_another_wanbed_is_refused() -> None:
    with pytest.raises(MissingError, match=r"^machine node1: its wanbed 0.1.0 \(0123\) is not this one \("):
        lines_of(node0=FACTS, node1=replace(FACTS, sources="0123"))


def test_what_a_machine_lacks_is_named_with_the_machine() -> None:
    lacking = replace(FACTS, missing=("ping is not installed: apt-get install iputils-ping",))
    with pytest.raises(MissingError, match=r"^machine node1: ping is not installed: apt-get install iputils-ping$"):
        check_lacks_nothing({"node0": FACTS, "node1": lacking})


def test_a_machine_is_reached_at_its_card() -> None:
    assert underlays_of({"node0": FACTS}, "wireguard") == {"node0": Underlay("192.0.2.10", "eth0", 1500, "wireguard")}
    with pytest.raises(MissingError, match=r"^machine node0: no card has its address"):
        underlays_of({"node0": replace(FACTS, card=None)}, "vxlan")


def test_an_error_names_its_machine_once() -> None:
    with pytest.raises(MissingError, match=r"^machine node0: no netem$"), naming("node0"):
        raise MissingError("no netem")
    with pytest.raises(MissingError, match=r"^node0 has no netem$"), naming("node0"):
        raise MissingError("node0 has no netem")


def test_timers_are_as_late_as_those_of_the_latest_machine() -> None:
    assert timers_of({"node0": FACTS}) is Timers.KERNEL
    assert timers_of({"node0": FACTS, "node1": replace(FACTS, cpu="UML")}) is Timers.GUEST
