"""Judge whether bytes of a trial went around the emulated network. If so, its figures are not of that network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RDMA_TOLERANCE_BYTES = 2**20
"""Devices may send this much in a trial for other reasons, like the management of their network."""


@dataclass(frozen=True)
class WaysAround:
    """Hold what a trial recorded: links that carried less than was sent over them, and what RDMA devices have sent.

    ``short`` has source, destination, bytes sent and bytes carried.
    """

    short: tuple[tuple[str, str, int, int], ...] = ()
    rdma_bytes: int = 0

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "WaysAround":
        """Read what trial.json records."""
        carried, rdma = facts.get("carried") or {}, facts.get("rdma_sent_bytes") or {}
        return cls(tuple((*ends, sent, got) for *ends, sent, got in carried.get("short") or ()), sum(rdma.values()))

    @property
    def used(self) -> bool:
        """Return whether bytes went around the network."""
        return bool(self.short) or self.rdma_bytes > RDMA_TOLERANCE_BYTES

    @property
    def sentence(self) -> str:
        """Return what went around, as a sentence without its full stop; "" if nothing did."""
        parts = [
            f"{source} to {destination} carried {carried / 1e6:.1f} MB of {sent / 1e6:.1f} MB that were sent"
            for source, destination, sent, carried in self.short[:1]
        ]
        if self.rdma_bytes > RDMA_TOLERANCE_BYTES:
            parts.append(f"RDMA devices sent {self.rdma_bytes / 1e6:.1f} MB")
        return f"bytes went around the emulated network: {', and '.join(parts)}" if parts else ""
