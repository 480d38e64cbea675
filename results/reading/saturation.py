"""Judge whether the machine's cores kept up with a trial; where they did not, its figures are the machine's."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from results.text.number_text import percent_text

WORRYING_SHARE = 0.1
"""Of a trial's time with all cores busy: the start of the ranks alone takes some."""

WORRYING_NETWORK_SHARE = 0.6
"""Of a trial's time with the network's core busy: traffic comes in bursts, in which it then has none to spare."""


@dataclass(frozen=True)
class MachineLoad:
    """The machine's load that a trial recorded: shares of its time, None where there is no record.

    ``cores_saturated`` is the share with all cores busy, ``network_core_busy`` that of the one core which carries the
    guest's network.
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
        """Whether cores set the pace, and not the network."""
        return self._cores or self._network

    @property
    def worst(self) -> float:
        """The larger of both shares."""
        return max(self.cores_saturated or 0.0, self.network_core_busy or 0.0)

    @property
    def mark(self) -> str:
        """The cores that were busy and for how long, in a table; "" where they kept up."""
        if self._cores:
            return f"all cores {percent_text(self.cores_saturated)}"
        return f"network core {percent_text(self.network_core_busy)}" if self._network else ""

    @property
    def sentence(self) -> str:
        """The same as a sentence without its full stop."""
        if self._cores:
            share = f"{self.cores_saturated:.0%}"
            return f"the machine was saturated for {share} of the trial: its cores set the pace, and not the network"
        if self._network:
            busy = f"for {self.network_core_busy:.0%} of the trial on its one core"
            return f"the guest kernel that carries the network was busy {busy}, so that packets waited for it"
        return ""

    @property
    def _cores(self) -> bool:
        return (self.cores_saturated or 0.0) > WORRYING_SHARE

    @property
    def _network(self) -> bool:
        return (self.network_core_busy or 0.0) > WORRYING_NETWORK_SHARE


@dataclass(frozen=True)
class Saturation:
    """The number of saturated repeats of one variant at one sweep point; ``worst`` is the load of the busiest."""

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
        """The cores that were busy, for how long, and in how many repeats; "" where all kept up."""
        if not self.saturated:
            return ""
        where = "" if self.saturated == self.repeats else f" in {self.saturated} of {self.repeats} repeats"
        return self.worst.mark + where
