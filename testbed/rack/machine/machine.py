"""One machine of a rack, as its driver calls it: it carries hosts for one run at a time, and ends with its driver.

A machine takes itself down when its driver has neither called nor asked for the clock for ``lease_s``. If the process
that holds it is killed, a supervisor does.
"""

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from wanbed.ground.errors import WanbedError
from wanbed.testbed.claims.registry import STATE_ROOT, claims
from wanbed.testbed.gpus.gpus import GpuMemory, GpuReadings, gpu_memories
from wanbed.testbed.kernel.course_run import CourseRecord
from wanbed.testbed.kernel.link_counters import PortCounters
from wanbed.testbed.kernel.processors import CpuTimes, read_cpu_times
from wanbed.testbed.kernel.rdma_devices import rdma_sent_bytes
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.rack.machine.facts import MachineFacts, read_machine_facts
from wanbed.testbed.rack.machine.lease import Lease, check_unleased
from wanbed.testbed.rack.machine.wireguard_tunnel import make_key_pair
from wanbed.testbed.rack.machine_handle import FilePiece, LeaseFacts, MachineOrder, ProgramOrder
from wanbed.testbed.rack.sent_files import NotSentError, digest_of

LEASE_S = 12.0
"""The time for which a driver may be silent. It asks every second, twice."""
_LOOKS = 10
"""The number of times within ``lease_s`` that a machine looks whether its driver still calls."""


class LeaseEndedError(WanbedError):
    """The machine has no lease, or its lease has ended; the message is one line that says why."""


class Machine:
    """The orders of a driver to one machine. Every argument and result can be pickled; any thread may call.

    ``address`` is that of the card towards other machines, None for the card of the default route.
    ``root`` is the folder of this machine's claims.
    """

    def __init__(self, address: str | None = None, *, lease_s: float = LEASE_S, root: Path = STATE_ROOT) -> None:
        self._address = address
        self._lease_s = lease_s
        self._root = root
        self._lease: Lease | None = None
        self._archives: dict[str, bytes] = {}
        self._private_keys: dict[str, str] = {}
        self._ended = "it has leased nothing here"
        self._changing, self._counting = threading.Lock(), threading.Lock()
        self._calls = 0
        self._called_s = time.monotonic()

    def facts(self) -> MachineFacts:
        """Return the facts of this machine."""
        return read_machine_facts(self._address)

    def public_key(self) -> str:
        """Draw the keys of this machine's end of an encrypted overlay, and return the one that others may know.

        The other one is kept for the order that names this one. Raise MissingError if a program for it is lacking.
        """
        keys = make_key_pair()
        self._private_keys[keys.public] = keys.private
        return keys.public

    def used_slots(self) -> set[int]:
        """Return the address slots that testbeds of this machine have."""
        return {held.record.slot for held in claims(self._root)}

    def gpu_memories(self, uuids: Sequence[str]) -> dict[str, GpuMemory]:
        """Return the memory of those of these GPUs that report it."""
        return gpu_memories(uuids)

    def receive_archive(self, archive: bytes) -> str:
        """Keep an archive of files for leases to come, as long as this process lives. Return its SHA-256."""
        digest = digest_of(archive)
        self._archives[digest] = archive
        return digest

    def bring_up(self, order: MachineOrder) -> LeaseFacts:
        """Lease this machine to a run, and create its hosts and its part of the network.

        Raise MissingError, naming the other run, if the machine is leased, NotSentError for files that it has not
        received, and what bringing up a network raises.
        """
        with self._called(), self._changing:
            check_unleased(self._root)
            if order.sent is not None and order.sent not in self._archives:
                raise NotSentError(f"the files {order.sent[:12]} of the run's programs were not sent here")
            sent = None if order.sent is None else self._archives[order.sent]
            private_key = self._private_keys.pop(order.plan.underlay.public_key, "")
            self._lease = lease = Lease(order, self._root, sent, private_key, self._asked)
            try:
                facts = lease.bring_up()
            except BaseException:
                self._end("its network could not be brought up")
                raise
            threading.Thread(target=self._watch, args=(lease,), name="lease", daemon=True).start()
            return facts

    def take_down(self) -> None:
        """End the lease and everything of it. Do nothing if there is none."""
        with self._called(), self._changing:
            self._end("its run has taken it down")

    def settle(self, trim_ns: int) -> None:
        """Complete the WAN links, whose delays are ``trim_ns`` below the configured ones."""
        with self._leased() as lease:
            lease.settle(trim_ns)

    def hold_links(self, time_ns: int) -> None:
        """Put the links that change, as far as they are on this machine, in their conditions at a time of their course.

        Raise ReadBackError if the kernel has others then.
        """
        with self._leased() as lease:
            lease.hold_links(time_ns)

    def begin_links(self, begin_ns: int) -> None:
        """Let their courses begin at a moment of this machine's clock, which may be to come."""
        with self._leased() as lease:
            lease.begin_links(begin_ns)

    def end_links(self) -> CourseRecord:
        """End their courses, and return what was changed, by this machine's clock.

        Raise ReadBackError, also for a change while the courses ran.
        """
        with self._leased() as lease:
            return lease.end_links()

    def start(self, host: str, what: ProgramOrder) -> int:
        """Start a program on a host of this machine, and return its number."""
        with self._leased() as lease:
            return lease.start(host, what)

    def wait(self, numbers: Sequence[int], timeout_s: float) -> dict[int, int]:
        """Return the exit status of each of these processes that has ended; wait until one has, for ``timeout_s``."""
        with self._leased() as lease:
            return lease.processes.wait(numbers, timeout_s)

    def output(self, number: int, offset: int) -> bytes:
        """Return what a process has printed from this byte on."""
        with self._leased() as lease:
            return lease.processes.output(number, offset)

    def kill(self, number: int, signal_number: int) -> None:
        """Send a signal to a process, if it still runs."""
        with self._leased() as lease:
            lease.processes.kill(number, signal_number)

    def ended_ns(self, number: int) -> int:
        """Return when a process that has ended did so, by this machine's monotonic clock."""
        with self._leased() as lease:
            return lease.processes.ended_ns(number)

    def fail(self, hosts: Sequence[str], numbers: Sequence[int], at_ns: int) -> int:
        """Cut hosts off and kill processes at this moment of this machine's clock. Return when that began."""
        with self._leased() as lease:
            return lease.failures.fail(hosts, numbers, at_ns)

    def connect_again(self, hosts: Sequence[str]) -> None:
        """Connect hosts that were cut off."""
        with self._leased() as lease:
            lease.failures.connect_again(hosts)

    def append_file(self, path: str, content: bytes) -> None:
        """Add to a file below the lease's folder, of a path like ``trial/rank-3.json``, or begin it."""
        with self._leased() as lease:
            lease.files.append(path, content)

    def read_files(
        self, patterns: Sequence[str], known_bytes: Mapping[str, int], most_bytes: int
    ) -> dict[str, FilePiece]:
        """Return what the files below the lease's folder that match, like ``trial/rank-3.*``, have beyond these sizes.

        All contents together have ``most_bytes`` at most: so many mean that there may be more.
        """
        with self._leased() as lease:
            return lease.files.read(patterns, known_bytes, most_bytes)

    def remove_files(self, patterns: Sequence[str]) -> None:
        """Remove the files below the lease's folder that match."""
        with self._leased() as lease:
            lease.files.remove(patterns)

    def written_files(self) -> dict[str, int]:
        """Return the sizes of the files that users' programs have written since the last call, in what was sent."""
        with self._leased() as lease:
            return {} if lease.written is None else lease.written.changed()

    def read_written(self, name: str, offset: int, most_bytes: int) -> bytes:
        """Return a part of such a file, b"" behind its end."""
        with self._leased() as lease:
            return b"" if lease.written is None else lease.written.read(name, offset, most_bytes)

    def make_gate(self, path: str, pipes: tuple[str, str]) -> None:
        """Make a gate for ranks of this machine: two named pipes in a new folder below the lease's."""
        with self._leased() as lease:
            lease.make_gate(path, pipes)

    def await_gate(self, path: str, known: int, timeout_s: float) -> int:
        """Return how many ranks have come to a gate; wait until more than ``known`` have, at most for ``timeout_s``."""
        with self._leased() as lease:
            return lease.gate(path).arrivals(known, timeout_s)

    def open_gate(self, path: str, at_ns: int) -> None:
        """Open a gate at this moment of this machine's clock, or now if it has passed."""
        with self._leased() as lease:
            lease.gate(path).open(at_ns)

    def remove_gate(self, path: str) -> None:
        """Open a gate and remove it."""
        with self._leased() as lease:
            lease.remove_gate(path)

    def use_tcp(self, settings: TcpSettings, hosts: Collection[str] | None = None) -> None:
        """Apply TCP settings on those of its hosts that ``hosts`` names, by default on all.

        Raise MissingError for a congestion control that the kernel lacks.
        """
        with self._leased() as lease:
            lease.use_tcp(settings, hosts)

    def read_sysctls(self) -> dict[str, dict[str, str | None]]:
        """Read the TCP sysctls of every host."""
        with self._leased() as lease:
            return lease.read_sysctls()

    def read_offloads(self) -> dict[str, Any]:
        """Read sizes and offloads of every interface."""
        with self._leased() as lease:
            return lease.read_offloads()

    def read_qdiscs(self) -> dict[str, Any]:
        """Read every port's qdiscs from the kernel."""
        with self._leased() as lease:
            return lease.read_qdiscs()

    def read_counters(self) -> list[PortCounters]:
        """Read the counters of every WAN port."""
        with self._leased() as lease:
            return lease.read_counters()

    def read_tcp_states(self) -> list[bytes]:
        """Read the state of every connection of every host, as the kernel's messages."""
        with self._leased() as lease:
            return lease.read_tcp_states()

    def read_gpus(self, uuids: tuple[str, ...]) -> tuple[GpuReadings, tuple[str, ...]]:
        """Read these GPUs of this machine. Return the readings, and why some of them are not read any more."""
        with self._leased() as lease:
            return lease.read_gpus(uuids)

    def cpu_times(self) -> CpuTimes:
        """Read the CPU times of this machine's cores."""
        with self._called():
            return read_cpu_times()

    def rdma_sent_bytes(self) -> dict[str, int]:
        """Return how many bytes each port of an RDMA device of this machine has sent since it came up."""
        with self._called():
            return dict(rdma_sent_bytes())

    def clock_ns(self) -> int:
        """Return the time of this machine's monotonic clock. Calling it keeps the lease."""
        with self._called():
            return time.monotonic_ns()

    def _asked(self) -> None:
        self._called_s = time.monotonic()

    @contextmanager
    def _called(self) -> Iterator[None]:
        with self._counting:
            self._calls += 1
        try:
            yield
        finally:
            with self._counting:
                self._calls -= 1
                self._called_s = time.monotonic()

    @contextmanager
    def _leased(self) -> Iterator[Lease]:
        with self._called():
            if self._lease is None:
                raise LeaseEndedError(f"the run has no lease of this machine: {self._ended}")
            yield self._lease

    def _end(self, why: str) -> None:
        lease, self._lease, self._ended = self._lease, None, why
        if lease is not None:
            lease.take_down()

    def _watch(self, lease: Lease) -> None:
        while self._lease is lease:
            silent_s = 0.0 if self._calls else time.monotonic() - self._called_s
            if silent_s > self._lease_s:
                with self._changing, suppress(Exception):
                    # If it fails, the supervisor still ends what is left, with this process.
                    self._end(f"its driver was silent for {self._lease_s:g} s")
                return
            time.sleep(self._lease_s / _LOOKS)
