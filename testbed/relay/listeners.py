"""Listen for hosts where their programs listen, at the addresses at which other hosts reach them.

Whoever listens on a host is found by looking at the kernel's list of sockets. So no program has to know the relay, and
a port that nobody listens on refuses connections. Other users' sockets are no programs of a host, and their programs no
callers.
"""

import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

from wanbed.ground.tcp_caller import foreign_caller
from wanbed.testbed.kernel.listening_sockets import Address, ListeningSockets

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
