"""Read the facts of one machine that its part of a network depends on. Facts that cannot be read are None."""

import os
import platform
import re
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from wanbed.module_process import FOLDER
from wanbed.testbed.gpus.gpus import machine_gpus
from wanbed.testbed.hosts.host_environment import missing_programs
from wanbed.testbed.kernel.namespace import open_netlink
from wanbed.testbed.kernel.rdma_devices import rdma_ports
from wanbed.testbed.substrate.probe import probe_kernel

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_CARDS = Path("/sys/class/net")
_OWN_NETWORK = "/proc/thread-self/ns/net"


@dataclass(frozen=True)
class Card:
    """The network card that carries what goes to other machines; ``speed_bps`` is None if the card states none."""

    interface: str
    address: str
    driver: str | None
    speed_bps: int | None
    mtu: int


@dataclass(frozen=True)
class MachineFacts:
    """The facts of a machine. ``missing`` has a line, with the remedy, for each thing that hosts need and it lacks.

    ``sources`` is equal on two machines if and only if they have the same wanbed. ``rdma`` has the ports of RDMA
    devices.
    """

    hostname: str
    boot_id: str | None
    kernel: str
    version: str | None
    sources: str
    cpu: str
    cores: int
    memory_bytes: int
    governor: str | None
    load_average: tuple[float, ...]
    card: Card | None
    gpus: tuple[dict[str, Any], ...]
    missing: tuple[str, ...]
    rdma: tuple[dict[str, Any], ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the facts in plain JSON types, as in manifests."""
        return {name: [*fact] if isinstance(fact, tuple) else fact for name, fact in asdict(self).items()}


def read_machine_facts(address: str | None) -> MachineFacts:
    """Read the facts of this machine, whose card has ``address``; None for that of the default route."""
    model = re.search(r"^model name\s*:\s*(.+)$", _text(Path("/proc/cpuinfo")) or "", re.MULTILINE)
    return MachineFacts(
        hostname=platform.node(),
        boot_id=_text(_BOOT_ID),
        kernel=platform.release(),
        version=_version(),
        sources=sources_hash(),
        cpu=model.group(1).strip() if model else platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        governor=_text(_GOVERNOR),
        load_average=os.getloadavg(),
        card=find_card(address),
        gpus=tuple(gpu.document() for gpu in machine_gpus()),
        missing=tuple(_missing()),
        rdma=tuple(port.document() for port in rdma_ports()),
    )


@cache
def sources_hash(folder: Path = FOLDER) -> str:
    """Return a hash of the paths and contents of all Python files below ``folder``."""
    digest = sha256()
    # In a checkout, wanbed's packages are links.
    places = os.walk(folder, followlinks=True)
    for path in sorted(Path(place, name) for place, _, names in places for name in names if name.endswith(".py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def find_card(address: str | None) -> Card | None:
    """Return the interface that has ``address``, or that of the default route; None if there is none."""
    netlink = open_netlink(_OWN_NETWORK)
    try:
        if address is None:
            outward = [route.get_attr("RTA_OIF") for route in netlink.get_default_routes()]
            held = [each for each in netlink.get_addr() if each["index"] in outward[:1]]
        else:
            held = [each for each in netlink.get_addr() if each.get_attr("IFA_ADDRESS") == address]
        if not held:
            return None
        (link,) = netlink.get_links(held[0]["index"])
        name = str(link.get_attr("IFLA_IFNAME"))
        return Card(
            name, str(held[0].get_attr("IFA_ADDRESS")), _driver(name), _speed_bps(name), link.get_attr("IFLA_MTU")
        )
    finally:
        netlink.close()


def _driver(interface: str) -> str | None:
    link = _CARDS / interface / "device" / "driver"
    return link.resolve().name if link.exists() else None


def _speed_bps(interface: str) -> int | None:
    text = _text(_CARDS / interface / "speed")
    # A virtual card says -1, or nothing at all.
    return int(text) * 10**6 if text is not None and text.isdigit() else None


def _missing() -> list[str]:
    lines = [
        f"{program} is not installed: apt-get install {package}" for program, package in missing_programs().items()
    ]
    kernel = probe_kernel()
    return lines if kernel.available else [*lines, f"{kernel.reason}: {kernel.install}"]


def _version() -> str | None:
    try:
        return metadata.version("wanbed")
    except metadata.PackageNotFoundError:
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
