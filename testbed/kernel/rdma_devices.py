"""Read this machine's RDMA devices, and how much they have sent: no qdisc of any kernel sees that traffic."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

DEVICES = Path("/sys/class/infiniband")
_WORD_BYTES = 4
"""``port_xmit_data`` counts words of the InfiniBand specification."""


@dataclass(frozen=True)
class RdmaPort:
    """One port of a device; ``state``, ``rate`` and ``link_layer`` are the kernel's words, None where it has none."""

    device: str
    port: int
    state: str | None
    rate: str | None
    link_layer: str | None

    @property
    def name(self) -> str:
        """The device and the number of its port."""
        return f"{self.device}/{self.port}"

    def document(self) -> dict[str, Any]:
        """Return the port in plain JSON types."""
        return asdict(self)


def rdma_ports(devices: Path = DEVICES) -> tuple[RdmaPort, ...]:
    """Return the ports of all devices, none on a machine without RDMA."""
    return tuple(
        RdmaPort(
            folder.parent.parent.name,
            int(folder.name),
            _text(folder / "state"),
            _text(folder / "rate"),
            _text(folder / "link_layer"),
        )
        for folder in sorted(devices.glob("*/ports/[0-9]*"))
    )


def rdma_sent_bytes(devices: Path = DEVICES) -> Mapping[str, int]:
    """Return how many bytes each port that counts them has sent since it came up, by its name."""
    sent = {
        port.name: _text(devices / port.device / f"ports/{port.port}/counters/port_xmit_data")
        for port in rdma_ports(devices)
    }
    return {name: int(text) * _WORD_BYTES for name, text in sent.items() if text is not None and text.isdigit()}


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
