"""One relayed connection: the socket to its caller, the socket to the host that is called, and a flow each way."""

import select
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from wanbed.testbed.network.flow_model.window import TcpWindow
from wanbed.testbed.relay.model.flow import RelayFlow
from wanbed.testbed.relay.model.lanes import RelayLane
from wanbed.testbed.relay.model.timeline import Timeline

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_READABLE = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
EVENTS = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
"""A socket reports each change once, and is read until it is empty."""

Handle = Callable[[int, int], None]
"""Called with the events of a socket and the time (ns)."""


class Loop(Protocol):
    """The loop that waits for the events of sockets."""

    timeline: Timeline

    def watch(self, watched: socket.socket, handle: Handle) -> None:
        """Call ``handle`` for every event of a socket, once for each change."""

    def forget(self, watched: socket.socket) -> None:
        """Watch a socket no more, before it is closed."""


class RelayedConnection:
    """A connection over ``there``, with acknowledgements and the other direction over ``back``.

    ``windows`` are those of both directions. ``called`` is being connected. Both sockets are closed by this object.
    """

    def __init__(
        self,
        loop: Loop,
        caller: socket.socket,
        called: socket.socket,
        lanes: tuple[RelayLane, RelayLane],
        windows: tuple[TcpWindow, TcpWindow],
        *,
        trim_ns: Callable[[], int],
    ) -> None:
        there, back = lanes
        self._loop = loop
        self._sockets = [caller, called]
        self._finished = 0
        forth, returning = windows
        self._there = self._flow(caller, called, (there, back), forth, trim_ns)
        self._back = self._flow(called, caller, (back, there), returning, trim_ns)
        loop.watch(caller, self._handler(self._there, self._back))
        loop.watch(called, self._handler(self._back, self._there))

    def _flow(
        self,
        source: socket.socket,
        destination: socket.socket,
        lanes: tuple[RelayLane, RelayLane],
        window: TcpWindow,
        trim_ns: Callable[[], int],
    ) -> RelayFlow:
        def write(data: memoryview) -> int:
            try:
                return destination.send(data)
            except BlockingIOError:
                return 0
            except OSError:
                # Whoever has gone takes no more bytes. Its peer learns it from the other direction.
                return len(data)

        def finish(reset: bool) -> None:
            if reset:
                self._close(reset=True)
                return
            with suppress(OSError):
                destination.shutdown(socket.SHUT_WR)
            self._finished += 1
            if self._finished == 2:
                self._close()

        return RelayFlow(
            *lanes, window, self._loop.timeline, read=source.recv, write=write, finish=finish, trim_ns=trim_ns
        )

    @staticmethod
    def _handler(incoming: RelayFlow, outgoing: RelayFlow) -> Handle:
        def handle(events: int, now_ns: int) -> None:
            if events & select.EPOLLOUT:
                outgoing.writable(now_ns)
            if events & _READABLE:
                incoming.readable(now_ns)

        return handle

    def _close(self, *, reset: bool = False) -> None:
        for each in self._sockets:
            self._loop.forget(each)
            if reset:
                with suppress(OSError):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            each.close()
        self._sockets = []
