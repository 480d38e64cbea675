"""Connect a rank to its peers. Of any two ranks the one with the lower number calls, and both send a hello.

A caller whose peer does not listen yet tries again until the deadline. A listener has one port for all its callers. It
accepts exactly the connections that it expects, one of each index, from the ranks of its own run, and drops every
other client; of silent ones those that have waited longest, so that no number of them keeps a peer out. One loop over
non-blocking sockets does all of this, so that ranks may start in any order.
"""

import errno
import os
import selectors
import socket
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from wanbed.ground.socket_owner import foreign_caller
from wanbed.workloads.transport.frame import HELLO_BYTES, FrameError, Hello, decode_hello
from wanbed.workloads.transport.links_config import LinksConfig, RendezvousConfig
from wanbed.workloads.transport.peer import Peer, TransportError
from wanbed.workloads.transport.socket_options import (
    PEER_TIMEOUT_S,
    hold_unsent,
    make_socket,
    peer_listens,
    reset_on_close,
)

RETRY_NS = 20_000_000
"""After so long a peer that does not listen yet is called again."""

_MOST_SILENT = 256
"""Clients beside the peers' own that may be connected before their hello. Each holds a descriptor."""


@dataclass(frozen=True)
class Identity:
    """This rank as its peers see it: its number, the address that its sockets are bound to, the port it listens on."""

    run_token: bytes
    rank: int
    address: str
    port: int


class _Greeting:
    """A socket before the hello of the peer has been read."""

    def __init__(self, made: socket.socket) -> None:
        self.socket = made
        self._received = b""

    def read(self) -> Hello | None:
        """Return the peer's hello, None until all of it was read.

        Raise FrameError if it is not a hello, OSError if the connection ended.
        """
        try:
            part = self.socket.recv(HELLO_BYTES - len(self._received))
        except BlockingIOError:
            return None
        if not part:
            raise ConnectionResetError("it closed the connection before its hello was whole")
        self._received += part
        return decode_hello(self._received) if len(self._received) == HELLO_BYTES else None


class _Call(_Greeting):
    """Connection ``index`` to ``callee``, which this rank has called."""

    def __init__(self, made: socket.socket, callee: Peer, index: int) -> None:
        super().__init__(made)
        self.callee = callee
        self.index = index


class Rendezvous:
    """The rendezvous of one rank. It listens from its construction on; ``rendezvous`` connects.

    ``peers`` of lower ranks call this rank, and it calls those of higher ranks. ``log`` is called with one line for
    each client that was dropped. Sockets are made by ``make_socket``, whose errors are raised. Each holds at most the
    peer's ``unsent_bytes`` unsent. ``calls`` are the ranks that this rank calls, None for those of higher ranks; all
    others call it.
    """

    def __init__(
        self,
        identity: Identity,
        peers: Sequence[Peer],
        log: Callable[[str], None],
        window_bytes: int | None = None,
        *,
        calls: Collection[int] | None = None,
        peer_timeout_s: int = PEER_TIMEOUT_S,
    ) -> None:
        self._identity = identity
        if calls is None:
            calls = {peer.rank for peer in peers if peer.rank > identity.rank}
        self._callers = {peer.rank: peer for peer in peers if peer.rank not in calls}
        self._callees = {peer.rank: peer for peer in peers if peer.rank in calls}
        self._make_socket = partial(make_socket, window_bytes=window_bytes, peer_timeout_s=peer_timeout_s)
        self._log = log
        self._selector = selectors.DefaultSelector()
        self._connected_sockets: dict[int, dict[int, socket.socket]] = {peer.rank: {} for peer in peers}
        self._retries: list[tuple[int, Peer, int]] = []
        self._last_failure = dict.fromkeys(self._callees, "no answer")
        self.dropped = 0
        self._silent: dict[_Greeting, str] = {}
        self._most_silent = sum(peer.connections for peer in self._callers.values()) + _MOST_SILENT
        if self._callers:
            self._listener = self._make_socket(identity.address, identity.port)
            self._listener.listen(self._most_silent)
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    @classmethod
    def configured(
        cls,
        config: RendezvousConfig,
        links: LinksConfig,
        log: Callable[[str], None],
        *,
        calls: Collection[int] | None = None,
    ) -> "Rendezvous":
        """Return the rendezvous of the rank whose links these are."""
        identity = Identity(bytes.fromhex(config.run_token), links.rank, config.listen_address, config.listen_port)
        return cls(
            identity,
            links.peers,
            log,
            links.window_bytes,
            calls=calls,
            peer_timeout_s=config.peer_timeout_s,
        )

    def rendezvous(self, timeout_ns: int) -> dict[int, list[socket.socket]]:
        """Return the connected, non-blocking sockets to each peer, by its rank, in the order of their index.

        Raise TransportError if not all are connected within ``timeout_ns``, or if a rank answers that was not called.
        """
        deadline_ns = time.monotonic_ns() + timeout_ns
        try:
            for callee in self._callees.values():
                for index in range(callee.connections):
                    self._call(callee, index)
            while missing := self._missing():
                now_ns = time.monotonic_ns()
                if now_ns >= deadline_ns:
                    raise TransportError(f"{missing} within {timeout_ns / 1e9:g} s")
                due_ns = min((retry_ns for retry_ns, _, _ in self._retries), default=deadline_ns)
                for key, _ in self._selector.select(max(0, min(due_ns, deadline_ns) - now_ns) / 1e9):
                    key.data()
                self._retry()
        except BaseException:
            self._close(all_sockets=True)
            raise
        self._close(all_sockets=False)
        return {
            rank: [by_index[index] for index in sorted(by_index)] for rank, by_index in self._connected_sockets.items()
        }

    def await_caller(self, stop: int) -> tuple[int, list[socket.socket]] | None:
        """Return the next rank that has called, with its connected sockets. It may call again.

        Return None, and close everything, once the descriptor ``stop`` is readable.
        """
        self._selector.register(stop, selectors.EVENT_READ)
        while True:
            for rank, caller in self._callers.items():
                if len(found := self._connected_sockets[rank]) == caller.connections:
                    self._connected_sockets[rank] = {}
                    self._selector.unregister(stop)
                    return rank, [found[index] for index in sorted(found)]
            for key, _ in self._selector.select():
                if key.fileobj == stop:
                    self._selector.unregister(stop)
                    self._close(all_sockets=True)
                    return None
                key.data()

    def _missing(self) -> str:
        for callee in self._callees.values():
            if len(self._connected_sockets[callee.rank]) < callee.connections:
                return (
                    f"{callee} port {callee.port} answered {len(self._connected_sockets[callee.rank])} of "
                    f"{callee.connections} connections ({self._last_failure[callee.rank]})"
                )
        for caller in self._callers.values():
            if len(self._connected_sockets[caller.rank]) < caller.connections:
                return (
                    f"{caller} opened {len(self._connected_sockets[caller.rank])} of {caller.connections} connections "
                    f"({self.dropped} clients dropped)"
                )
        return ""

    def _close(self, *, all_sockets: bool) -> None:
        """Close the listener and unfinished connections or, with ``all_sockets``, everything."""
        connected = {made for by_index in self._connected_sockets.values() for made in by_index.values()}
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            if isinstance(key.fileobj, socket.socket) and key.fileobj not in connected:
                key.fileobj.close()
        self._selector.close()
        if all_sockets:
            for made in connected:
                made.close()

    def _call(self, callee: Peer, index: int) -> None:
        address = callee.listens_at
        made = self._make_socket(self._identity.address, 0)
        call = _Call(made, callee, index)
        self._selector.register(made, selectors.EVENT_WRITE, lambda: self._on_connected(call))
        error = made.connect_ex(address) if peer_listens(*address) else errno.ECONNREFUSED
        if error not in {0, errno.EINPROGRESS}:
            self._retry_later(call, os.strerror(error))

    def _retry(self) -> None:
        now_ns = time.monotonic_ns()
        due = [(callee, index) for retry_ns, callee, index in self._retries if retry_ns <= now_ns]
        self._retries = [retry for retry in self._retries if retry[0] > now_ns]
        for callee, index in due:
            self._call(callee, index)

    def _retry_later(self, call: _Call, failure: str) -> None:
        self._selector.unregister(call.socket)
        call.socket.close()
        self._last_failure[call.callee.rank] = failure
        self._retries.append((time.monotonic_ns() + RETRY_NS, call.callee, call.index))

    def _hello(self, peer: Peer, index: int) -> Hello:
        return Hello(self._identity.run_token, self._identity.rank, index, peer.connections)

    def _on_connected(self, call: _Call) -> None:
        try:
            error = call.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            call.socket.send(self._hello(call.callee, call.index).encode())
        except OSError as failure:
            self._retry_later(call, failure.strerror or str(failure))
            return
        self._selector.modify(call.socket, selectors.EVENT_READ, lambda: self._on_answer(call))

    def _on_answer(self, call: _Call) -> None:
        callee = call.callee
        try:
            hello = call.read()
        except FrameError as refusal:
            raise TransportError(f"{callee} port {callee.port}: {refusal}") from None
        except OSError as failure:
            self._retry_later(call, failure.strerror or str(failure))
            return
        if hello is None:
            return
        if fault := _mismatch(hello, self._hello(callee, call.index)._replace(rank=callee.rank)):
            raise TransportError(f"{callee} port {callee.port}: {fault}")
        self._finish(callee, call.index, call.socket)

    def _accept(self) -> None:
        try:
            made, (address, port) = self._listener.accept()
        except OSError:
            return
        made.setblocking(False)
        client = f"{address} port {port}"
        greeting = _Greeting(made)
        self._silent[greeting] = client
        self._selector.register(made, selectors.EVENT_READ, lambda: self._on_hello(address, greeting, client))
        expected = sorted({caller.address for caller in self._callers.values()})
        if address not in expected:
            self._drop(client, greeting, f"expected is {' or '.join(expected)}")
        elif (user := foreign_caller(made)) is not None:
            self._drop(client, greeting, f"it is a program of {user}")
        elif len(self._silent) > self._most_silent:
            longest = next(iter(self._silent))
            self._drop(self._silent[longest], longest, f"it has said nothing, like {self._most_silent} after it")

    def _on_hello(self, address: str, greeting: _Greeting, client: str) -> None:
        if greeting not in self._silent:
            # It was dropped for another one after it had become readable.
            return
        try:
            hello = greeting.read()
            if hello is None:
                return
            if not (fault := self._fault_of_caller(hello, address)):
                caller = self._callers[hello.rank]
                del self._silent[greeting]
                greeting.socket.send(self._hello(caller, hello.connection).encode())
                self._finish(caller, hello.connection, greeting.socket)
                return
        except (FrameError, OSError) as refusal:
            self._drop(client, greeting, str(refusal))
            return
        self._drop(client, greeting, fault)

    def _fault_of_caller(self, hello: Hello, address: str) -> str:
        caller = self._callers.get(hello.rank)
        if caller is None:
            if hello.run_token != self._identity.run_token:
                return "it belongs to another run"
            return f"it is rank {hello.rank}, expected is rank {' or '.join(map(str, sorted(self._callers)))}"
        if fault := _mismatch(hello, self._hello(caller, hello.connection)._replace(rank=caller.rank)):
            return fault
        if address != caller.address:
            return f"it is rank {hello.rank}, which is expected from {caller.address}"
        return (
            f"connection {hello.connection} is already established"
            if hello.connection in self._connected_sockets[caller.rank]
            else ""
        )

    def _drop(self, client: str, greeting: _Greeting, fault: str) -> None:
        self._silent.pop(greeting, None)
        self._selector.unregister(greeting.socket)
        greeting.socket.close()
        self.dropped += 1
        self._log(f"dropped the client {client}: {fault}")

    def _finish(self, peer: Peer, index: int, made: socket.socket) -> None:
        self._selector.unregister(made)
        reset_on_close(made)
        hold_unsent(made, peer.unsent_bytes)
        self._connected_sockets[peer.rank][index] = made


def _mismatch(hello: Hello, expected: Hello) -> str:
    """Return how ``hello`` differs from ``expected``, "" if it does not. The token is a secret and never shown."""
    if hello.run_token != expected.run_token:
        return "it belongs to another run"
    if hello.rank != expected.rank:
        return f"it is rank {hello.rank}, expected is rank {expected.rank}"
    if hello.connections != expected.connections:
        return f"it opens {hello.connections} connections, expected are {expected.connections}"
    if hello.connection != expected.connection:
        return f"it answers for connection {hello.connection}, expected is connection {expected.connection}"
    return ""
