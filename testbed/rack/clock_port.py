"""Ask a machine for its clock by datagrams, whose round trip is a small part of that of a call.

An answer is also a sign of life of the machine, and a question one of its driver. The machine answers at a UDP port of
its card while it is leased, and only who knows the lease's key. A question is the key and a number, the answer the
number and the machine's time, padded to the question's size.
"""

import hmac
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

_KEY_BYTES = 16
_QUESTION, _ANSWER = struct.Struct(f"!{_KEY_BYTES}sQ"), struct.Struct("!QQ8x")
_TRIES, _PATIENCE_S = 4, 0.25
_LOOK_S = 1.0
"""The time for which a port that is closed may go on waiting, where a datagram of its own does not reach it."""


@dataclass(frozen=True)
class ClockPlace:
    """The address at which a machine answers, and the key that it wants to see."""

    address: str
    port: int
    key: bytes


class ClockPort:
    """Answer at the card's address with the time of this machine's monotonic clock, until ``close``.

    ``asked`` is called at each question.
    """

    def __init__(self, address: str, asked: Callable[[], None] = lambda: None) -> None:
        self._asked = asked
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 0))
        self._socket.settimeout(_LOOK_S)
        self.place = ClockPlace(address, self._socket.getsockname()[1], secrets.token_bytes(_KEY_BYTES))
        self._answering = threading.Thread(target=self._answer, name="clock", daemon=True)
        self._closing = False
        self._answering.start()

    def close(self) -> None:
        """Answer no more."""
        self._closing = True
        # A datagram of our own ends the wait for one.
        with suppress(OSError):
            self._socket.sendto(b"", (self.place.address, self.place.port))
        self._answering.join()
        self._socket.close()

    def _answer(self) -> None:
        while not self._closing:
            with suppress(OSError):
                question, asker = self._socket.recvfrom(_QUESTION.size + 1)
                now_ns = time.monotonic_ns()
                if len(question) != _QUESTION.size:
                    continue
                key, number = _QUESTION.unpack(question)
                if hmac.compare_digest(key, self.place.key):
                    self._asked()
                    self._socket.sendto(_ANSWER.pack(number, now_ns), asker)


class ClockQuestions:
    """Ask a machine for its time, from any thread, one at a time.

    ``call`` asks by a call, which takes longer. It is what is left if there is no ``place``, or if that has never
    answered: a firewall may be between.
    """

    def __init__(self, place: ClockPlace | None, datagrams: socket.socket | None, call: Callable[[], int]) -> None:
        self._place, self._datagrams, self._call = place, datagrams, call
        self._numbers = count()
        self._answered = False

    def clock_ns(self) -> int:
        """Return the machine's time. Raise what the call raises."""
        for _ in range(_TRIES):
            if (answer := self._asked(_PATIENCE_S)) is not None:
                return answer
        if not self._answered:
            self.close()
        return self._call()

    @property
    def by_datagrams(self) -> bool:
        """True if it asks by datagrams."""
        return self._place is not None and self._datagrams is not None

    def is_answered(self, timeout_s: float) -> bool:
        """Ask by a datagram, and return whether this question or an earlier one is answered within ``timeout_s``."""
        return self._asked(timeout_s, or_earlier=True) is not None

    def close(self) -> None:
        """Ask by calls from now on."""
        if self._datagrams is not None:
            self._datagrams.close()
            self._datagrams = None

    def _asked(self, timeout_s: float, *, or_earlier: bool = False) -> int | None:
        if self._place is None or self._datagrams is None:
            return None
        number = next(self._numbers)
        self._datagrams.settimeout(timeout_s)
        with suppress(OSError):
            self._datagrams.sendto(_QUESTION.pack(self._place.key, number), (self._place.address, self._place.port))
            while True:
                answer, answerer = self._datagrams.recvfrom(_ANSWER.size + 1)
                if len(answer) == _ANSWER.size and answerer == (self._place.address, self._place.port):
                    answered, machine_ns = _ANSWER.unpack(answer)
                    if answered == number or (or_earlier and answered < number):
                        self._answered = True
                        return int(machine_ns)
        return None
