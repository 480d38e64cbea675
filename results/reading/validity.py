"""Judge whether figures are of the emulated network: neither of a machine that was too slow, nor of bytes around it.

A run marks besides what its network is not: a trunk that several machines divided, or TCP that is a model's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from wanbed.results.text import list_text, percent_text

WORRYING_SHARE = 0.1
"""Above this share of a trial's time with all cores busy, a trial is saturated. Starting the ranks alone takes some."""

WORRYING_NETWORK_SHARE = 0.6
"""Above this share of a trial's time with the network's core busy, a trial is saturated.

Traffic comes in bursts: at such a mean, the core has no capacity left during a burst.
"""

SATURATION_REMEDY = "run with a larger dilation, or with more cores where something computes in real time"


@dataclass(frozen=True)
class MachineLoad:
    """The machine's load that a trial recorded, as shares of the trial's time; None if not recorded.

    ``cores_saturated`` is the share with all cores busy. ``network_core_busy`` is the share with the one core
    of the gateway guest or relay busy.
    """

    cores_saturated: float | None
    network_core_busy: float | None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "MachineLoad":
        """Read the load that trial.json records."""
        load = facts.get("machine_load")
        recorded = load if isinstance(load, Mapping) else {}
        cores, network = (recorded.get(name) for name in ("saturated", "network"))
        return cls(*(float(share) if isinstance(share, (int, float)) else None for share in (cores, network)))

    @property
    def saturated(self) -> bool:
        """Tell whether the cores limited the trial, rather than the network."""
        return self._cores or self._network

    @property
    def worst(self) -> float:
        """The larger of both shares."""
        return max(self.cores_saturated or 0.0, self.network_core_busy or 0.0)

    @property
    def mark(self) -> str:
        """Which cores were busy and for what share of the time, as a table shows it; "" if not saturated."""
        if self._cores:
            return f"all cores {percent_text(self.cores_saturated)}"
        return f"network core {percent_text(self.network_core_busy)}" if self._network else ""

    @property
    def sentence(self) -> str:
        """The same as ``mark``, as a sentence without its full stop."""
        if self._cores:
            share = f"{self.cores_saturated:.0%}"
            return f"the machine was saturated for {share} of the trial: its cores, not the network, limited the speed"
        if self._network:
            share = f"{self.network_core_busy:.0%}"
            core = "the one core of the gateway guest or relay"
            return f"{core} was busy for {share} of the trial, so that bytes waited for it"
        return ""

    @property
    def _cores(self) -> bool:
        return (self.cores_saturated or 0.0) > WORRYING_SHARE

    @property
    def _network(self) -> bool:
        return (self.network_core_busy or 0.0) > WORRYING_NETWORK_SHARE


@dataclass(frozen=True)
class Saturation:
    """The number of saturated repeats of one variant at one sweep point; ``worst`` is the highest load of a repeat."""

    repeats: int
    saturated: int
    worst: MachineLoad

    @classmethod
    def of(cls, trials: Iterable[Mapping[str, Any]]) -> "Saturation":
        """Read the loads from the facts of these trials."""
        loads = [MachineLoad.of(facts) for facts in trials]
        worst = max(loads, key=lambda load: (load.saturated, load.worst), default=MachineLoad(None, None))
        return cls(len(loads), sum(load.saturated for load in loads), worst)

    @property
    def mark(self) -> str:
        """Which cores were busy, for what share of the time, and in how many repeats; "" if no repeat is saturated."""
        if not self.saturated:
            return ""
        where = "" if self.saturated == self.repeats else f" in {self.saturated} of {self.repeats} repeats"
        return self.worst.mark + where


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
        """Tell whether bytes went around the network."""
        return bool(self.short) or self.rdma_bytes > RDMA_TOLERANCE_BYTES

    @property
    def sentence(self) -> str:
        """The bytes that went around, as a sentence without its full stop; "" if none did."""
        parts = [
            f"{source} to {destination} carried {carried / 1e6:.1f} MB of {sent / 1e6:.1f} MB that were sent"
            for source, destination, sent, carried in self.short[:1]
        ]
        if self.rdma_bytes > RDMA_TOLERANCE_BYTES:
            parts.append(f"RDMA devices sent {self.rdma_bytes / 1e6:.1f} MB")
        return f"bytes went around the emulated network: {', and '.join(parts)}" if parts else ""


def divided_trunks_text(manifest: Mapping[str, Any]) -> str | None:
    """Return the sentence that marks a run over machines with divided trunks, None for any other run."""
    of_points: Mapping[str, Mapping[str, int]] = manifest.get("trunk_split") or {}
    machines = {trunk: count for trunks in of_points.values() for trunk, count in trunks.items()}
    if not machines:
        return None
    trunks = list_text([f"{trunk} (by {count})" for trunk, count in machines.items()])
    return (
        f"Trunks were divided equally among the machines that send into them: {trunks}. No machine gets what others "
        "leave, so that transfers that are not simultaneous are slower than on a trunk that is shared."
    )


MODELLED = "modelled"
"""The value of the manifest's ``substrate.tcp`` for a run over the relay. It is absent where a kernel's TCP ran."""

MODELLED_TCP = (
    "TCP is modelled: a relay imposed latency, rates, windows and slow start, not a kernel. Compare these figures only "
    "with those of other runs over the relay."
)


def tcp_is_modelled(manifest: Mapping[str, Any]) -> bool:
    """Return whether an emulated run's TCP is a model's and not a kernel's."""
    return (manifest.get("substrate") or {}).get("tcp") == MODELLED
