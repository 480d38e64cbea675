"""Define how a driver and the machines of a rack talk: calls of a machine's methods, whatever carries them there.

Orders and answers are plain data, which travels as pickles.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from wanbed.ground.errors import WanbedError
from wanbed.testbed.rack.clock_port import ClockPlace
from wanbed.testbed.rack.machine_plan import VXLAN, MachinePlan


class MachineLostError(WanbedError):
    """A machine of the rack does not answer any more; the message is one line that names it."""


class Pending(Protocol):
    """A call that has been sent to a machine."""

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait for the method's end and return what it returned; None waits as long as the machine is there.

        Raise what the method raised, MachineLostError if the machine has gone, and TimeoutError after ``timeout_s``:
        the call then goes on, and its result may be asked for again.
        """


class CalledMachine(Protocol):
    """A machine of the rack whose methods can be called. Several calls may be under way at the same time."""

    @property
    def name(self) -> str:
        """The machine's name, the same in messages, placements and results."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the machine's ``Machine`` and return what it returns.

        Arguments and result travel between machines as pickles. Raise what the method raised, an error of wanbed as
        itself, and MachineLostError if the machine has gone.
        """

    def start_call(self, method: str, *arguments: Any) -> Pending:
        """Send a call and return without waiting for it."""


class MachineHandle(CalledMachine, Protocol):
    """One machine of the rack, from the driver's side."""

    def datagram_socket(self) -> socket.socket | None:
        """Return a new UDP socket that reaches the machine's card, None if there is none."""

    def is_reachable(self, timeout_s: float) -> bool:
        """Return whether the machine's kernel answers within ``timeout_s``, however busy its processes are."""


@dataclass(frozen=True)
class RunOrder:
    """Hold what a run orders of all its machines, for every network that it has.

    ``name`` is the run's, shown to people, ``overlay`` what carries packets between machines. Without ``shaped`` no
    link has a delay, a loss or a rate: there are no qdiscs, so that the machines need no netem. ``modules`` is a zip
    file that Python modules of the hosts' processes are imported from first, empty for none.
    """

    name: str = ""
    overlay: str = VXLAN
    shaped: bool = True
    modules: bytes = b""


@dataclass(frozen=True)
class MachineOrder:
    """The network and hosts that a machine brings up for a run.

    ``slot`` is the address slot, the same on all machines. ``hosts_file`` is the text of /etc/hosts on each host,
    ``environments`` what programs of a host have in addition to the machine's environment. ``sent`` is the SHA-256 of
    an archive of files that the machine has received before and that the run's programs find there, None for none.
    """

    run: RunOrder
    slot: int
    plan: MachinePlan
    hosts_file: str
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    sent: str | None = None


@dataclass(frozen=True)
class ProgramOrder:
    """A program to start on a host: a command line, or ``main(arguments)`` of a Python module of wanbed.

    ``environment`` is added to that of the machine. ``files`` are written to the lease's folder before it starts, by
    their paths there. An argument that is such a path becomes the file's on the machine.
    """

    argv: tuple[str, ...] = ()
    module: str | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class LeaseFacts:
    """The facts that a driver needs of a lease that is up.

    ``kernel`` is the machine's kernel release, ``folder`` the folder of the lease's files there, and ``module_parent``
    the PID whose children its processes are. ``clock`` is where it answers questions for its time. ``run_module`` are
    the words that run a module of wanbed there, in front of its name, and begin with Python's path. ``search_path`` is
    the PATH of its programs, and ``sent_folder`` where the files of ``MachineOrder.sent`` are, None for none.
    """

    kernel: str
    folder: str
    module_parent: int
    clock: ClockPlace | None = None
    run_module: tuple[str, ...] = ()
    search_path: str = ""
    sent_folder: str | None = None


class FilePiece(NamedTuple):
    """The bytes of a file on a machine beyond a size, and its last change, by the machine's monotonic clock."""

    content: bytes
    modified_ns: int
