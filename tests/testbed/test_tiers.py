import pytest

from wanbed.testbed.rights.hosts_allowed import HostsAllowed
from wanbed.testbed.substrate.guest_device import GuestDevice
from wanbed.testbed.substrate.offer import GUEST, KERNEL, Offer
from wanbed.testbed.tiers import rights_lacking, tier_of

HAS_NETEM = Offer(KERNEL, True, "netem")
NO_NETEM = Offer(KERNEL, False, "no sch_netem", "modprobe sch_netem")
HAS_GUEST = Offer(GUEST, True, "User-Mode Linux")
NO_GUEST = Offer(GUEST, False, "no linux.uml", "apt-get install user-mode-linux")
DIRECTLY, ENTERING = HostsAllowed(None), HostsAllowed("refused", None, 1000)
NOWHERE = HostsAllowed("refused", "refused", 1000)
TAP, RAW = GuestDevice(None), GuestDevice("Permission denied")


@pytest.mark.parametrize(
    ("offers", "allowed", "name"),
    [
        ((HAS_NETEM, HAS_GUEST), DIRECTLY, "root, with the kernel's netem"),
        ((NO_NETEM, HAS_GUEST), DIRECTLY, "root, with the gateway guest"),
        ((HAS_NETEM, NO_GUEST), ENTERING, "user namespace, with the kernel's netem"),
        ((NO_NETEM, HAS_GUEST), ENTERING, "user namespace, with the gateway guest"),
        ((NO_NETEM, NO_GUEST), ENTERING, "hosts without a WAN, and simulation"),
        ((NO_NETEM, NO_GUEST), NOWHERE, "simulation"),
    ],
)
def test_the_tier_is_the_best_that_works(offers: tuple[Offer, ...], allowed: HostsAllowed, name: str) -> None:
    assert tier_of(offers, allowed, relay=False, virtual=False).name == name


def test_without_netem_virtual_time_is_the_tier() -> None:
    assert tier_of((NO_NETEM, NO_GUEST), ENTERING, relay=False, virtual=True).name == "virtual time and simulation"


@pytest.mark.parametrize(
    ("virtual", "name"), [(True, "the relay, virtual time and simulation"), (False, "the relay and simulation")]
)
def test_without_netem_the_relay_is_there_if_asked_for(virtual: bool, name: str) -> None:
    tier = tier_of((NO_NETEM, NO_GUEST), NOWHERE, relay=True, virtual=virtual)
    assert tier.name == name
    assert "TCP is modelled" in tier.lacks


def test_netem_comes_before_the_relay() -> None:
    tier = tier_of((NO_NETEM, HAS_GUEST), DIRECTLY, relay=True, virtual=True)
    assert tier.name == "root, with the gateway guest"


def test_a_guest_in_a_user_namespace_lacks_priority_and_netem_lacks_nothing() -> None:
    assert "without priority" in tier_of((NO_NETEM, HAS_GUEST), ENTERING, relay=True, virtual=False).lacks
    for allowed in (ENTERING, DIRECTLY):
        assert tier_of((HAS_NETEM, NO_GUEST), allowed, relay=True, virtual=False).lacks == ""


def rights(offers: tuple[Offer, ...], allowed: HostsAllowed, device: GuestDevice) -> list[str]:
    return [each.right for each in rights_lacking(offers, allowed, device)]


def test_root_with_netem_lacks_nothing() -> None:
    assert rights((HAS_NETEM, NO_GUEST), DIRECTLY, RAW) == []


def test_a_user_without_tap_devices_and_netem_lacks_three_rights() -> None:
    lacking = rights((NO_NETEM, HAS_GUEST), ENTERING, RAW)
    assert lacking == ["root, or sudo", "opening /dev/net/tun (Permission denied)", "modprobe sch_netem"]
    assert rights((NO_NETEM, HAS_GUEST), DIRECTLY, TAP) == ["modprobe sch_netem"]


def test_where_no_host_can_be_made_that_comes_first() -> None:
    assert rights((NO_NETEM, NO_GUEST), NOWHERE, RAW) == [NOWHERE.remedy]
