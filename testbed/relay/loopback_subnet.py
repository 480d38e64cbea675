"""Take a part of the loopback's addresses for one testbed, apart from those of all other users' testbeds."""

import socket
from contextlib import closing

from wanbed.ground.tcp_listener import TcpListener, listener_at
from wanbed.testbed.kernel.listening_sockets import ListeningSockets
from wanbed.testbed.kernel.missing import MissingError
from wanbed.testbed.network.addressing import LOOPBACK_SUBNETS, loopback_lock_address, loopback_subnets

_LOCK_PORT = 20_000


class LoopbackSubnet:
    """The addresses of one testbed, by their ``number``; free again when this is closed or its process has ended.

    Users do not see each other's records of testbeds. So who listens at a subnet's lock address has it. A subnet where
    another user's program listens is passed over. Raise MissingError if none is free, with who has the first one.
    """

    def __init__(self) -> None:
        with closing(ListeningSockets()) as sockets:
            others = [each for each in sockets.read() if not each.own]
        first: TcpListener | None = None
        for number in range(1, LOOPBACK_SUBNETS + 1):
            held = next((each for each in others if each.address.startswith(loopback_subnets(number))), None)
            lock = None if held else self._lock_of(number)
            if lock is not None:
                self.number = number
                self._lock = lock
                return
            first = first or held or listener_at(loopback_lock_address(number), _LOCK_PORT)
        raise MissingError(
            f"--substrate relay: none of the {LOOPBACK_SUBNETS} parts of the loopback is free: "
            f"{first or 'all are taken'}: end that program, or the testbeds that use them"
        )

    @staticmethod
    def _lock_of(number: int) -> socket.socket | None:
        lock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            lock.bind((loopback_lock_address(number), _LOCK_PORT))
            lock.listen(1)
        except OSError:
            lock.close()
            return None
        return lock

    def close(self) -> None:
        """Give the addresses back."""
        self._lock.close()
