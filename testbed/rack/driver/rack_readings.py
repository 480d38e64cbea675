"""Read the GPUs of several machines, and merge what the machines read of one network."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from wanbed.testbed.gpus.gpus import GpuReadings
from wanbed.testbed.kernel.link_counters import Counters, PortCounters
from wanbed.testbed.rack.machine_handle import CalledMachine

_NONE = Counters(0, 0, 0, 0)


def merged_counters(readings: Iterable[Sequence[PortCounters]]) -> list[PortCounters]:
    """Return the counters of each trunk, of which every machine of the sending datacenter has a part.

    Trunks are in the order in which they first appear.
    """
    parts: dict[tuple[str, str], list[PortCounters]] = {}
    for ports in readings:
        for port in ports:
            parts.setdefault((port.source, port.destination), []).append(port)
    return [
        PortCounters(
            *ends,
            reduce(_added, (port.total for port in ports)),
            {
                pair: reduce(_added, (port.pairs.get(pair, _NONE) for port in ports))
                for pair in dict.fromkeys(pair for port in ports for pair in port.pairs)
            },
        )
        for ends, ports in parts.items()
    ]


def _added(one: Counters, other: Counters) -> Counters:
    packets = None if one.packets is None or other.packets is None else one.packets + other.packets
    return Counters(
        one.wire_bytes + other.wire_bytes,
        packets,
        one.backlog_bytes + other.backlog_bytes,
        one.drops + other.drops,
    )


class RackGpus:
    """Read the GPUs with these UUIDs, which ``uuids`` has by machine, all machines at the same time.

    ``faults`` are why some of them are not read any more.
    """

    def __init__(self, machines: Sequence[CalledMachine], uuids: Mapping[str, Sequence[str]]) -> None:
        self._machines = [machine for machine in machines if uuids.get(machine.name)]
        self._uuids = uuids
        self._faults: dict[str, tuple[str, ...]] = {}

    @property
    def faults(self) -> list[str]:
        """One line for each fault, with its machine."""
        return [f"machine {name}: {fault}" for name, faults in self._faults.items() for fault in faults]

    def read(self) -> GpuReadings:
        """Read every GPU that has answered so far. Raise MachineLostError if a machine has gone."""
        pending = [machine.start_call("read_gpus", tuple(self._uuids[machine.name])) for machine in self._machines]
        found: GpuReadings = []
        for machine, each in zip(self._machines, pending, strict=True):
            readings, self._faults[machine.name] = each.result()
            found += readings
        return found

    def close(self) -> None:
        """Do nothing: a machine reads until its part of the testbed ends."""
