"""Do for hosts that are all on this machine what takes more where they are on several."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from wanbed.testbed.gpus.gpu_assignment import GpuAssignment
from wanbed.testbed.gpus.gpus import GpuReader
from wanbed.testbed.hosts.files_elsewhere import NoFilesElsewhere
from wanbed.testbed.hosts.host_environment import HostHome, home_here
from wanbed.testbed.hosts.manifest_facts import ManifestFacts
from wanbed.testbed.hosts.start_gate import StartGate
from wanbed.testbed.kernel.processors import CpuTimes, read_cpu_times
from wanbed.testbed.kernel.rdma_devices import rdma_sent_bytes


class HostsHere:
    """The part of a testbed that follows from its hosts being on this machine: one clock, one disk, one kernel."""

    gpus: GpuAssignment | None = None
    starts_slowly = False

    def gate(
        self,
        folder: Path,
        hosts: Sequence[str],
        pipes: tuple[str, str],
        *,
        begin: Callable[[], None] = lambda: None,
        opens_itself: bool = True,
    ) -> StartGate:
        """Return a gate in the new folder ``folder`` for a rank on each of these hosts."""
        return StartGate(folder, len(hosts), pipes, begin, opens_itself=opens_itself)

    def begin_trial(self, epoch_ns: int) -> None:
        """Do nothing: all times are of one clock."""

    def time_line(self) -> None:
        """Return None: all times are of one clock."""

    def end_trial(self) -> None:
        """Return None: all times are of one clock."""

    def check(self) -> None:
        """Do nothing: this process would have gone with its machine."""

    def home(self, host: str) -> HostHome:
        """Return what programs find on any host: what this machine has."""
        return home_here()

    def mirror(self, folder: Path) -> NoFilesElsewhere:
        """Return copies of nothing: processes write to the folder itself."""
        return NoFilesElsewhere()

    def shared(self, folder: Path) -> NoFilesElsewhere:
        """Return no other machine's files: all processes have the folder itself."""
        return NoFilesElsewhere()

    def take_written(self, folder: Path, name: str, most_bytes: int) -> None:
        """Return None: users' programs have written to their own files."""

    def cpu_times(self) -> Mapping[str, CpuTimes]:
        """Read the CPU times of this machine, under the name ""."""
        return {"": read_cpu_times()}

    def rdma_sent_bytes(self) -> Mapping[str, int]:
        """Read how much each port of an RDMA device has sent since it came up, by ``device/port``."""
        return rdma_sent_bytes()

    def gpu_reader(self) -> GpuReader | None:
        """Return a reader of the GPUs that hosts own, None if they own none."""
        uuids = set() if self.gpus is None else {seat.uuid for seat in self.gpus.seats()}
        return GpuReader(sorted(uuids)) if uuids else None

    def manifest_facts(self) -> ManifestFacts:
        """Return no entries: those about this machine are in every manifest."""
        return ManifestFacts()
