"""Relay the connections between the hosts of one testbed, in one thread.

A relayed connection has a socket to its caller, a socket to the host that is called, and a flow each way.

Whoever listens on a host is found by looking at the kernel's list of sockets. So no program has to know the relay, and
a port that nobody listens on refuses connections. Other users' sockets are no programs of a host, and their programs no
callers.
"""

import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from wanbed.flow.event_queue import EventQueue
from wanbed.flow.window import TcpWindow, opened
from wanbed.ground.socket_owner import foreign_caller, listener_at
from wanbed.testbed.kernel.tcp import Address, ListeningSockets
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.relay.flow import RelayFlow
from wanbed.testbed.relay.lanes import RelayLane, lanes
from wanbed.testbed.relay.relay_config import RelayConfig

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_READABLE = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
EVENTS = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
"""A socket reports each change once, and is read until it is empty."""

Handle = Callable[[int, int], None]
"""Called with the events of a socket and the time (ns)."""


class Loop(Protocol):
    """The loop that waits for the events of sockets."""

    events: EventQueue

    def watch(self, watched: socket.socket, handle: Handle) -> None:
        """Call ``handle`` for every event of a socket, once for each change."""

    def forget(self, watched: socket.socket) -> None:
        """Watch a socket no more, before it is closed."""


class _RelayedConnection:
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
            *lanes, window, self._loop.events, read=source.recv, write=write, finish=finish, trim_ns=trim_ns
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


_BACKLOG = 512

Accepted = Callable[[socket.socket, str, Address], None]
"""Called with a connection, its caller's address, and where the program listens that is called."""


class Listeners:
    """``reached_at`` has, by a host's own address, the address at which others reach it.

    The receive buffers of accepted connections have ``buffer_bytes``.
    """

    def __init__(self, reached_at: Mapping[str, str], accepted: Accepted, buffer_bytes: int) -> None:
        self._reached_at = reached_at
        self._accepted = accepted
        self._buffer_bytes = buffer_bytes
        self._sockets = ListeningSockets()
        self._listeners: dict[Address, socket.socket] = {}
        self._strangers: set[str] = set()

    def look(self) -> tuple[list[socket.socket], list[socket.socket]]:
        """Open and close listeners as programs have since the last look. Return the new ones and those to close."""
        found = [each for each in self._sockets.read() if each.own and each.address in self._reached_at]
        listening = {(each.address, each.port) for each in found}
        opened = [made for each in listening - self._listeners.keys() if (made := self._listen(each)) is not None]
        closed = [self._listeners.pop(each) for each in self._listeners.keys() - listening]
        return opened, closed

    def accept(self, listener: socket.socket) -> None:
        """Accept every connection that waits."""
        called = next(address for address, each in self._listeners.items() if each is listener)
        # Any other error, such as the lack of descriptors, ends the relay, whose last line the command then shows.
        with suppress(BlockingIOError, ConnectionError):
            while True:
                made, (caller, _) = listener.accept()
                if (user := foreign_caller(made)) is not None:
                    made.close()
                    self._dropped(user, called)
                    continue
                made.setblocking(False)
                self._accepted(made, caller, called)

    def _dropped(self, user: str, called: Address) -> None:
        """Log the first connection of another user that was dropped: more of them would fill the disk."""
        if user not in self._strangers:
            self._strangers.add(user)
            where = f"{called[0]}:{called[1]}"
            print(f"dropped a connection of {user} to {where}, and all others of theirs", file=sys.stderr)

    def _listen(self, program: Address) -> socket.socket | None:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # What waits here to be let out has left the sender's socket already, so it is little.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer_bytes)
        made.setblocking(False)
        try:
            made.bind((self._reached_at[program[0]], program[1]))
            made.listen(_BACKLOG)
        except OSError:
            made.close()
            return None
        self._listeners[program] = made
        return made


_LOOK_NS = 25_000_000
_BUFFER_BYTES = 64 * 1024


class Relay:
    """The relay of a testbed. ``settings`` are the TCP settings of connections that are opened from now on.

    ``trim_ns`` is by how much earlier bytes are delivered between datacenters, for what the machine itself adds.
    """

    def __init__(self, config: RelayConfig) -> None:
        self.events = EventQueue()
        self.settings = TcpSettings()
        self.trim_ns = 0
        self._config = config
        self._dilation = config.dilation
        self._host_at = {address: host for host, address in config.own.items()}
        self.lanes = lanes(config.topology, self.events)
        reached_at = {config.own[host]: address for host, address in config.reached_at.items()}
        self._listeners = Listeners(reached_at, self._accepted, _BUFFER_BYTES)
        self._poll = select.epoll()
        self._handlers: dict[int, Handle] = {}
        self._running = True

    def trim(self, machine_ns: int) -> None:
        """Deliver earlier between datacenters, by a time on the machine's clock that the path itself takes."""
        self.trim_ns = round(machine_ns / self._dilation)

    def watch(self, watched: socket.socket, handle: Handle, events: int = EVENTS) -> None:
        """Call ``handle`` for every event of a socket."""
        self._handlers[watched.fileno()] = handle
        self._poll.register(watched, events)

    def forget(self, watched: socket.socket) -> None:
        """Watch a socket no more, before it is closed."""
        del self._handlers[watched.fileno()]
        self._poll.unregister(watched)

    def watch_commands(self, descriptor: int, handle: Callable[[], bool]) -> None:
        """Call ``handle`` when the descriptor is readable; the relay ends once it returns False."""

        def commanded(_: int, __: int) -> None:
            self._running = handle()

        self._handlers[descriptor] = commanded
        self._poll.register(descriptor, select.EPOLLIN)

    def look(self) -> None:
        """Look where programs listen now."""
        opened_now, closed = self._listeners.look()
        for listener in opened_now:
            self.watch(listener, self._acceptor(listener), select.EPOLLIN)
        for listener in closed:
            self.forget(listener)
            listener.close()

    def _acceptor(self, listener: socket.socket) -> Handle:
        return lambda _, __: self._listeners.accept(listener)

    def run(self) -> None:
        """Relay until the commands end."""
        self.events.at(self._now_ns(), self._look_again, None)
        while self._running:
            self.events.handle_until(self._now_ns())
            self._wait()
            now_ns = self._now_ns()
            for descriptor, events in self._poll.poll(0):
                # An event before this one may have closed the socket.
                if (handle := self._handlers.get(descriptor)) is not None:
                    handle(events, now_ns)

    def _wait(self) -> None:
        """Wait for a socket or the next event. ``epoll`` alone would round the time up to whole milliseconds."""
        due_ns = self.events.next_ns
        assert due_ns is not None
        wait_s = max(due_ns - self._now_ns(), 0) * self._dilation / 1e9
        select.select([self._poll], [], [], wait_s)

    def _look_again(self, now_ns: int, _: None) -> None:
        self.look()
        self.events.at(max(now_ns, self._now_ns()) + _LOOK_NS, self._look_again, None)

    def _now_ns(self) -> int:
        """Return the time in the experiment's nanoseconds, which last ``dilation`` of the machine's."""
        return round(time.monotonic_ns() / self._dilation)

    def _accepted(self, caller: socket.socket, address: str, program: Address) -> None:
        source, destination = self._host_at.get(address), self._host_at[program[0]]
        if source is None or source == destination:
            # Not from a host, so that no line is known: the program has to bind its host's address.
            caller.close()
            return
        listener = listener_at(*program)
        if listener is None or not listener.own:
            # The program has closed since the last look, and another user may have taken its place.
            caller.close()
            return
        called = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        called.setblocking(False)
        called.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        for each in (caller, called):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        called.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        called.bind((self._config.reached_at[source], 0))
        # A refusal shows when the connection is read, like any other error.
        called.connect_ex(program)
        ways = self.lanes[source, destination], self.lanes[destination, source]
        across = self._config.topology.host(source).datacenter != self._config.topology.host(destination).datacenter
        _RelayedConnection(
            self,
            caller,
            called,
            ways,
            (self._window(ways[0]), self._window(ways[1])),
            trim_ns=(lambda: self.trim_ns) if across else (lambda: 0),
        )

    def _window(self, lane: RelayLane) -> TcpWindow:
        return opened(lane.line, 1, self.settings, piecewise=True)
