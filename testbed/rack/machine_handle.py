"""Say what the driver of a rack needs of a machine: calls of its methods, whatever carries them there."""

import socket
from typing import Any, Protocol

from wanbed.ground.wanbed_error import WanbedError


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
