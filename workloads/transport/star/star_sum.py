"""One replica's side of the sums of a star, as a ring's side is ``wanbed.workloads.transport.ring.ring``."""

from collections.abc import Callable

from wanbed.workloads.transport.event import PartReceived, PartSent
from wanbed.workloads.transport.frames.buffer_pool import BufferPool
from wanbed.workloads.transport.peer import TransportError
from wanbed.workloads.transport.star.gathering import Gathering
from wanbed.workloads.transport.striped_transport import StripedTransport


class StarSums:
    """Gives this replica's part of each sum, and takes the sum. Only one thread calls ``run`` and ``handle``.

    ``gathering`` is that of the replica that gathers, None at any other. A replica may be late: the sum that it gives
    its part for is then there already, without that part, and it goes on at once. It gives no part before the one
    before has left, so that at most one waits to be sent.
    """

    def __init__(self, transport: StripedTransport, pool: BufferPool, gathering: Gathering | None = None) -> None:
        self._transport = transport
        self._pool = pool
        self._gathering = gathering
        self._sums: dict[int, PartReceived] = {}
        self._leaving: dict[int, memoryview] = {}

    def handle(self, event: PartReceived | PartSent) -> None:
        """Handle an event of the star from the rank's queue."""
        if isinstance(event, PartSent):
            self._pool.give_back(self._leaving.pop(event.number))
        else:
            self._sums[event.number] = event

    def run(self, number: int, data: memoryview, await_event: Callable[[], None]) -> int:
        """Give ``data`` as this replica's part of sum ``number``, and replace it by the sum. Return its parts.

        ``await_event`` waits for one event of the rank's queue and handles it, an event of the star by ``handle``. Its
        errors end the run. Every replica calls this for each number in order, with the same size. Raise TransportError
        if the sum does not fit.
        """
        while self._leaving:
            await_event()
        part = self._pool.take(data.nbytes)
        if not self._transport.blank:
            part[:] = data
        if self._gathering is not None:
            self._gathering.give(number, part)
        else:
            self._leaving[number] = part
            self._transport.send_part(number, 1, part)
        while number not in self._sums:
            await_event()
        found = self._sums.pop(number)
        if found.payload.nbytes != data.nbytes:
            raise TransportError(f"{found.peer} sent a sum of {found.payload.nbytes} bytes, not {data.nbytes}")
        if not self._transport.blank:
            data[:] = found.payload
        if self._gathering is None:
            self._pool.give_back(found.payload)
        return found.parts
