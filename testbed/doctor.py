"""Diagnose what a testbed can use on this machine, and what to install for the rest."""

import shutil
from dataclasses import asdict, dataclass
from typing import Any

from testbed.gpus.gpus import NVIDIA_DRIVER, Gpu, machine_gpus
from testbed.gpus.nvml import BINDING_INSTALL
from testbed.hosts.host_programs import HOST_PROGRAMS
from testbed.substrate.probe import Offer, probe_guest, probe_kernel
from testbed.virtual_time.probe import VirtualTimeOffer, probe_virtual_time

WITHOUT_NETEM = (
    "no WAN can be emulated here; `wanbed simulate` and `wanbed profile` need none, and `wanbed exec --no-wan` runs "
    "a program on hosts that nothing delays"
)
"""What still works on a machine without netem."""


@dataclass(frozen=True)
class Missing:
    """Something the machine lacks: its name, why it is needed, and how to install it."""

    what: str
    why: str
    install: str


@dataclass(frozen=True)
class Diagnosis:
    """The result of all probes. ``substrate`` is None on a machine without netem; ``reason`` explains the choice."""

    substrate: str | None
    reason: str
    offers: tuple[Offer, ...]
    gpus: tuple[Gpu, ...]
    missing: tuple[Missing, ...]
    virtual_time: VirtualTimeOffer

    def document(self) -> dict[str, Any]:
        """Return the diagnosis as the JSON document of ``wanbed doctor``."""
        return {
            "netem": {
                "substrate": self.substrate,
                "reason": self.reason,
                "offers": [asdict(offer) for offer in self.offers],
            },
            "virtual_time": {**asdict(self.virtual_time), "root_for": list(self.virtual_time.root_for)},
            "gpus": [gpu.document() for gpu in self.gpus],
            "missing": [asdict(each) for each in self.missing],
        }


def diagnose() -> Diagnosis:
    """Probe everything that a testbed needs, without changing the machine."""
    kernel, guest = probe_kernel(), probe_guest()
    chosen = next((offer for offer in (kernel, guest) if offer.available), None)
    missing = []
    if chosen is None:
        missing += [Missing(f"netem in the {o.name} substrate", o.reason, o.install) for o in (kernel, guest)]
    for program, package in HOST_PROGRAMS.items():
        if shutil.which(program) is None:
            missing.append(Missing(program, "every emulated host uses it", f"apt-get install {package}"))
    reason = chosen.reason if chosen else "no netem anywhere"
    if chosen is guest:
        reason = f"{kernel.reason}, so {guest.reason}"
    gpus = machine_gpus(NVIDIA_DRIVER)
    if any(gpu.memory_bytes is None and gpu.fault is None for gpu in gpus):
        missing.append(Missing("NVML", "hosts that compute on GPUs get theirs through it", BINDING_INSTALL))
    name = chosen.name if chosen else None
    return Diagnosis(name, reason, (kernel, guest), gpus, tuple(missing), probe_virtual_time())
