"""Notice that a machine has gone, soon, and without giving up one that is only slow.

Once a second a machine is asked by a datagram and by a call; the answer to any earlier question counts too. A machine
without power answers nothing, and neither does its kernel: it is given up after ``SILENT_BEATS`` and one try to reach
the kernel, within 12 s. While the kernel answers, the machine is there, and its processes have ``STUCK_BEATS``.
Questions are counted, not seconds, so that a driver that was stopped itself gives nobody up.
"""

from wanbed.testbed.rack.clocks.clock_port import ClockPlace, ClockQuestions
from wanbed.testbed.rack.machine_handle import MachineHandle, MachineLostError, Pending

BEAT_S = 1.0
"""The time between two questions, and for how long each is waited for."""
SILENT_BEATS, STUCK_BEATS = 10, 30
KERNEL_S = 2.0
"""The time in which a kernel has to answer: it is long enough for the first packet to be sent twice."""


class Pulse:
    """The signs of life of one machine; ``place`` is where it answers datagrams, None if it does not."""

    def __init__(self, handle: MachineHandle, place: ClockPlace | None) -> None:
        self._handle = handle
        self._questions = ClockQuestions(place, handle.datagram_socket(), lambda: 0)
        self._call: Pending | None = None
        self._unanswered = 0

    def beat(self) -> None:
        """Ask once more, which takes ``BEAT_S`` if nothing is answered. Raise MachineLostError if the machine has gone.

        The call keeps the lease where datagrams do not arrive.
        """
        if self._call is None:
            self._call = self._handle.start_call("clock_ns")
        answered = self._questions.is_answered(BEAT_S)
        answered |= self._is_call_answered(0 if self._questions.by_datagrams else BEAT_S)
        self._unanswered = 0 if answered else self._unanswered + 1
        if self._unanswered >= STUCK_BEATS:
            raise MachineLostError(
                f"{self._handle.name} has left the rack: its kernel answers, and wanbed's agent there has not answered "
                f"{STUCK_BEATS} questions in a row"
            )
        if self._unanswered >= SILENT_BEATS and not self._handle.is_reachable(KERNEL_S):
            raise MachineLostError(
                f"{self._handle.name} has left the rack: it has not answered {SILENT_BEATS} questions in a row"
            )

    def close(self) -> None:
        """Release the socket."""
        self._questions.close()

    def _is_call_answered(self, timeout_s: float) -> bool:
        if self._call is None:
            return False
        try:
            self._call.result(timeout_s)
        except TimeoutError:
            return False
        self._call = None
        return True
