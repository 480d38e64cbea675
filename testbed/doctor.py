"""Diagnose what a testbed can use on this machine, and what to install for the rest."""

from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from wanbed.ground.compiled_core.core_cache import Core, present_core
from wanbed.testbed.gpus.gpus import NVIDIA_DRIVER, Gpu, machine_gpus
from wanbed.testbed.gpus.nvml import BINDING_INSTALL
from wanbed.testbed.hosts.host_programs import missing_programs
from wanbed.testbed.rights.hosts_allowed import hosts_allowed
from wanbed.testbed.substrate.guest_device import guest_device
from wanbed.testbed.substrate.offer import GUEST, Offer
from wanbed.testbed.substrate.offers import machine_offers
from wanbed.testbed.substrate.probe import probe_relay
from wanbed.testbed.tiers import Right, Tier, rights_lacking, tier_of
from wanbed.testbed.virtual_time.probe import VirtualTimeOffer, probe_virtual_time

WITHOUT_NETEM = "no WAN can be emulated with real TCP here; `wanbed simulate` and `wanbed profile` need none"
WITHOUT_WAN = ", and `wanbed exec --no-wan` runs a program on hosts that nothing delays"
"""Notes on a machine without netem: the commands that still work, and those where netem alone is missing."""

PYTHON_MODULES = (
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
    for module, why, install in PYTHON_MODULES:
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
