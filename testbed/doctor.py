"""Diagnose what a testbed can use on this machine: the tier of this user, what one more right brings, what to install.

Tiers go from everything down to simulation. What each lacks: docs/without-root.md.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from wanbed.ground.compiled_core.core_cache import Core, present_core
from wanbed.testbed.gpus.gpus import NVIDIA_DRIVER, Gpu, machine_gpus
from wanbed.testbed.gpus.nvml import BINDING_INSTALL
from wanbed.testbed.hosts.host_environment import missing_programs
from wanbed.testbed.rights import HostsAllowed, hosts_allowed
from wanbed.testbed.substrate.guest_device import TAP_DEVICE, GuestDevice, guest_device
from wanbed.testbed.substrate.offer import GUEST, KERNEL, Offer
from wanbed.testbed.substrate.probe import machine_offers, probe_relay
from wanbed.testbed.virtual_time.probe import VirtualTimeOffer, probe_virtual_time


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

_TIERS = {
    (KERNEL, False): Tier("root, with the kernel's netem"),
    (GUEST, False): Tier("root, with the gateway guest", _ONE_CORE),
    (KERNEL, True): Tier("user namespace, with the kernel's netem"),
    (GUEST, True): Tier("user namespace, with the gateway guest", f"{_ONE_CORE}, without priority over other programs"),
}
"""The tiers in which links are emulated in real time: by substrate, and whether in a user namespace."""

_MODELLED = "TCP is modelled, and only if asked for with --substrate relay; no programs of your own"
_RELAY_AND_VIRTUAL = Tier("the relay, virtual time and simulation", _MODELLED)
_RELAY_ONLY = Tier("the relay and simulation", _MODELLED)
VIRTUAL = Tier("virtual time and simulation", "no network in real time: no programs of your own, no GPUs")
_NO_WAN = Tier("hosts without a WAN, and simulation", "no link has a delay, a rate or a loss")
_SIMULATION = Tier("simulation", "nothing is emulated")


def tier_of(offers: Sequence[Offer], allowed: HostsAllowed, *, relay: bool, virtual: bool) -> Tier:
    """Return the best tier; ``offers`` are those of the substrates with netem, best first."""
    chosen = next((offer.name for offer in offers if offer.available), None)
    if chosen is not None:
        return _TIERS[chosen, allowed.by_entering]
    if relay:
        return _RELAY_AND_VIRTUAL if virtual else _RELAY_ONLY
    if virtual:
        return VIRTUAL
    return _SIMULATION if allowed.directly is not None and not allowed.by_entering else _NO_WAN


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


WITHOUT_NETEM = "no WAN can be emulated with real TCP here; `wanbed simulate` and `wanbed profile` need none"
WITHOUT_WAN = ", and `wanbed exec --no-wan` runs a program on hosts that nothing delays"
"""Notes on a machine without netem: the commands that still work, and those where netem alone is missing."""

_PYTHON_MODULES = (
    ("mininet", "every emulated host is one of its nodes", "pip install mininet"),
    ("distutils", "Mininet imports it, and Python has none from 3.12 on", "pip install setuptools"),
)
"""Modules that hosts need: name, why, and how to install it."""


@dataclass(frozen=True)
class Missing:
    """Something the machine lacks: its name, why it is needed, and how to install it."""

    what: str
    why: str
    install: str


@dataclass(frozen=True)
class Diagnosis:
    """The result of all probes. ``substrate`` is None on a machine without netem; ``reason`` explains the choice.

    ``hosts`` is whether hosts can be made, ``rights`` what rights would improve ``tier``. ``offers`` are those of the
    substrates with netem; ``relay`` is the one without. ``simulator`` is what a simulation runs on.
    """

    tier: Tier
    rights: tuple[Right, ...]
    hosts: bool
    substrate: str | None
    reason: str
    offers: tuple[Offer, ...]
    relay: Offer
    gpus: tuple[Gpu, ...]
    missing: tuple[Missing, ...]
    virtual_time: VirtualTimeOffer
    simulator: Core

    def document(self) -> dict[str, Any]:
        """Return the diagnosis as the JSON document of ``wanbed doctor``."""
        return {
            "tier": {**asdict(self.tier), "rights": [asdict(right) for right in self.rights]},
            "netem": {
                "substrate": self.substrate,
                "reason": self.reason,
                "offers": [asdict(offer) for offer in self.offers],
            },
            "relay": asdict(self.relay),
            "virtual_time": {**asdict(self.virtual_time), "root_for": list(self.virtual_time.root_for)},
            "simulator": {"core": self.simulator.name, "reason": self.simulator.reason},
            "gpus": [gpu.document() for gpu in self.gpus],
            "missing": [asdict(each) for each in self.missing],
        }


def diagnose() -> Diagnosis:
    """Probe everything that a testbed needs, without changing the machine."""
    allowed = hosts_allowed()
    offers = machine_offers(allowed)
    chosen = next((offer for offer in offers if offer.available), None)
    missing = []
    if chosen is None:
        missing += [Missing(f"netem in the {offer.name} substrate", offer.reason, offer.install) for offer in offers]
    for program, package in missing_programs().items():
        missing.append(Missing(program, "every emulated host uses it", f"apt-get install {package}"))
    for module, why, install in _PYTHON_MODULES:
        if find_spec(module) is None:
            missing.append(Missing(module, why, install))
    reason = chosen.reason if chosen else "no netem anywhere"
    if chosen is not None and chosen.name == GUEST:
        reason = ", so ".join(offer.reason for offer in offers)
    gpus = machine_gpus(NVIDIA_DRIVER)
    if any(gpu.memory_bytes is None and gpu.fault is None for gpu in gpus):
        missing.append(Missing("NVML", "hosts that compute on GPUs get theirs through it", BINDING_INSTALL))
    relay, virtual = probe_relay(), probe_virtual_time()
    return Diagnosis(
        tier=tier_of(offers, allowed, relay=relay.available, virtual=virtual.available),
        rights=rights_lacking(offers, allowed, guest_device()),
        hosts=allowed.directly is None or allowed.by_entering,
        substrate=chosen.name if chosen else None,
        reason=reason,
        offers=offers,
        relay=relay,
        gpus=gpus,
        missing=tuple(missing),
        virtual_time=virtual,
        simulator=present_core(),
    )
