"""Name what this machine gives this user, in tiers from everything down to simulation, and what one more right brings.

What each tier lacks: docs/without-root.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from wanbed.testbed.rights.hosts_allowed import HostsAllowed
from wanbed.testbed.substrate.guest_device import TAP_DEVICE, GuestDevice
from wanbed.testbed.substrate.offer import GUEST, KERNEL, Offer


@dataclass(frozen=True)
class Tier:
    """One tier: its name, and what it lacks compared with the first."""

    name: str
    lacks: str = ""


@dataclass(frozen=True)
class Right:
    """A right that this user does not have, or how to get it, and what it would bring."""

    right: str
    brings: str


_ONE_CORE = "one core carries all links"

TIERS = {
    (KERNEL, False): Tier("root, with the kernel's netem"),
    (GUEST, False): Tier("root, with the gateway guest", _ONE_CORE),
    (KERNEL, True): Tier("user namespace, with the kernel's netem"),
    (GUEST, True): Tier("user namespace, with the gateway guest", f"{_ONE_CORE}, without priority over other programs"),
}
"""The tiers in which links are emulated in real time: by substrate, and whether in a user namespace."""

_MODELLED = "TCP is modelled, and only if asked for with --substrate relay; no programs of your own"
RELAY_AND_VIRTUAL = Tier("the relay, virtual time and simulation", _MODELLED)
RELAY_ONLY = Tier("the relay and simulation", _MODELLED)
VIRTUAL = Tier("virtual time and simulation", "no network in real time: no programs of your own, no GPUs")
NO_WAN = Tier("hosts without a WAN, and simulation", "no link has a delay, a rate or a loss")
SIMULATION = Tier("simulation", "nothing is emulated")


def tier_of(offers: Sequence[Offer], allowed: HostsAllowed, *, relay: bool, virtual: bool) -> Tier:
    """Return the best tier; ``offers`` are those of the substrates with netem, best first."""
    chosen = next((offer.name for offer in offers if offer.available), None)
    if chosen is not None:
        return TIERS[chosen, allowed.by_entering]
    if relay:
        return RELAY_AND_VIRTUAL if virtual else RELAY_ONLY
    if virtual:
        return VIRTUAL
    return SIMULATION if allowed.directly is not None and not allowed.by_entering else NO_WAN


def rights_lacking(offers: Sequence[Offer], allowed: HostsAllowed, device: GuestDevice) -> tuple[Right, ...]:
    """Return the rights that would bring a better tier or a better network, each with what it brings alone."""
    if allowed.directly is not None and not allowed.by_entering:
        return (Right(allowed.remedy, "hosts in network namespaces, and links between them"),)
    found = []
    uses_guest = next((offer.name for offer in offers if offer.available), None) == GUEST
    if allowed.by_entering and uses_guest:
        found.append(Right("root, or sudo", "priority for the gateway guest over other programs"))
    if uses_guest and device.tap_refusal is not None:
        found.append(
            Right(
                f"opening {TAP_DEVICE} ({device.tap_refusal})",
                "TAP devices, which queue 1000 packets; a raw socket queues what net.core.rmem_max allows",
            )
        )
    found += [Right(offer.install, "links on every core") for offer in offers if uses_guest and offer.name == KERNEL]
    return tuple(found)
