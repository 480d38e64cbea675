"""Read the GPUs of several machines."""

from collections.abc import Mapping, Sequence

from wanbed.testbed.gpus.gpus import GpuReadings
from wanbed.testbed.rack.machine_handle import CalledMachine


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
