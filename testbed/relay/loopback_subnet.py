"""Take a part of the loopback's addresses for one testbed, apart from those of all other users' testbeds."""

import socket

from ground.strict_model import InputError
from testbed.network.addressing import LOOPBACK_SUBNETS, loopback_lock_address

_LOCK_PORT = 20_000


class LoopbackSubnet:
    """The addresses of one testbed, by their ``number``; free again when this is closed or its process has ended.

    Users do not see each other's records of testbeds. So who listens at a subnet's lock address has it. Raise
    InputError if none is free.
    """

    def __init__(self) -> None:
        for number in range(1, LOOPBACK_SUBNETS + 1):
            lock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                lock.bind((loopback_lock_address(number), _LOCK_PORT))
                lock.listen(1)
            except OSError:
                lock.close()
                continue
            self.number = number
            self._lock = lock
            return
        raise InputError(f"--substrate relay: {LOOPBACK_SUBNETS} testbeds use the loopback already, end some of them")

    def close(self) -> None:
        """Give the addresses back."""
        self._lock.close()
