"""Relay the connections between the hosts of one testbed, in one thread."""

import select
import socket
import time
from collections.abc import Callable

from wanbed.ground.tcp_listener import listener_at
from wanbed.testbed.kernel.listening_sockets import Address
from wanbed.testbed.network.flow_model.window import TcpWindow, opened
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.relay.listeners import Listeners
from wanbed.testbed.relay.model.lanes import RelayLane
from wanbed.testbed.relay.model.relay_network import lanes
from wanbed.testbed.relay.model.timeline import Timeline
from wanbed.testbed.relay.relay_config import RelayConfig
from wanbed.testbed.relay.relayed_connection import EVENTS, Handle, RelayedConnection

_LOOK_NS = 25_000_000
_BUFFER_BYTES = 64 * 1024


class Relay:
    """The relay of a testbed. ``settings`` are the TCP settings of connections that are opened from now on.

    ``trim_ns`` is by how much earlier bytes are delivered between datacenters, for what the machine itself adds.
    """

    def __init__(self, config: RelayConfig) -> None:
        self.timeline = Timeline()
        self.settings = TcpSettings()
        self.trim_ns = 0
        self._config = config
        self._dilation = config.dilation
        self._host_at = {address: host for host, address in config.own.items()}
        self.lanes = lanes(config.topology, self.timeline)
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
        self.timeline.at(self._now_ns(), self._look_again)
        while self._running:
            self.timeline.handle(self._now_ns())
            self._wait()
            now_ns = self._now_ns()
            for descriptor, events in self._poll.poll(0):
                # An event before this one may have closed the socket.
                if (handle := self._handlers.get(descriptor)) is not None:
                    handle(events, now_ns)

    def _wait(self) -> None:
        """Wait for a socket or the next event. ``epoll`` alone would round the time up to whole milliseconds."""
        due_ns = self.timeline.next_ns
        assert due_ns is not None
        wait_s = max(due_ns - self._now_ns(), 0) * self._dilation / 1e9
        select.select([self._poll], [], [], wait_s)

    def _look_again(self, now_ns: int) -> None:
        self.look()
        self.timeline.at(max(now_ns, self._now_ns()) + _LOOK_NS, self._look_again)

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
        RelayedConnection(
            self,
            caller,
            called,
            ways,
            (self._window(ways[0]), self._window(ways[1])),
            trim_ns=(lambda: self.trim_ns) if across else (lambda: 0),
        )

    def _window(self, lane: RelayLane) -> TcpWindow:
        return opened(lane.line, 1, self.settings, piecewise=True)
