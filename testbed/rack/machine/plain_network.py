"""Measure the plain network between two machines: the RTT, and the bandwidth each way, over one TCP connection.

It takes two seconds and 16 MiB each way at most. One machine listens; the other one connects, shows a token that both
got from their driver, measures, and has the listener send.
"""

import hmac
import socket
import statistics
import struct
import time

_ECHOES = 20
_CHUNK = bytes(2**17)
_MOST_BYTES = 2**24
_LONGEST_S = 1.0
_PATIENCE_S = 20.0
_LENGTH = struct.Struct("!I")
_TIME = struct.Struct("!d")


class PlainListener:
    """Listens for the one partner that knows the token."""

    def __init__(self, address: str, token: str) -> None:
        self._token = token.encode()
        self._listener = socket.create_server((address, 0))
        self._listener.settimeout(_PATIENCE_S)

    @property
    def port(self) -> int:
        """The address at which it listens."""
        return int(self._listener.getsockname()[1])

    def answer(self) -> None:
        """Play the listening side of one measurement. Raise OSError if nobody comes, or a stranger does."""
        with self._listener:
            line, _ = self._listener.accept()
        with line:
            _prepare(line)
            if not hmac.compare_digest(_received(line, len(self._token)), self._token):
                raise PermissionError("a stranger has connected")
            line.sendall(b"!")
            for _ in range(_ECHOES):
                line.sendall(_received(line, 1))
            _take(line)
            _send(line)


def measure_plain(address: str, port: int, token: str) -> dict[str, float]:
    """Measure the network to a machine that listens: ``rtt_ms``, ``out_bps`` and ``in_bps``."""
    with socket.create_connection((address, port), _PATIENCE_S) as line:
        _prepare(line)
        line.sendall(token.encode())
        _received(line, 1)
        rtts = []
        for _ in range(_ECHOES):
            began = time.perf_counter()
            line.sendall(b".")
            _received(line, 1)
            rtts.append(time.perf_counter() - began)
        return {"rtt_ms": statistics.median(rtts) * 1e3, "out_bps": _send(line), "in_bps": _take(line)}


def _prepare(line: socket.socket) -> None:
    line.settimeout(_PATIENCE_S)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _send(line: socket.socket) -> float:
    """Send until enough is sent, and return the rate at which the other side has received it."""
    began = time.perf_counter()
    sent = 0
    while sent < _MOST_BYTES and time.perf_counter() - began < _LONGEST_S:
        line.sendall(_LENGTH.pack(len(_CHUNK)) + _CHUNK)
        sent += len(_CHUNK)
    line.sendall(_LENGTH.pack(0))
    took_s = float(_TIME.unpack(_received(line, _TIME.size))[0])
    return sent * 8 / max(took_s, 1e-6)


def _take(line: socket.socket) -> float:
    """Receive what the other side sends, tell it how long that took, and return the rate."""
    began: float | None = None
    taken = 0
    while length := _LENGTH.unpack(_received(line, _LENGTH.size))[0]:
        began = time.perf_counter() if began is None else began
        _received(line, length)
        taken += length
    took_s = time.perf_counter() - (began or 0)
    line.sendall(_TIME.pack(took_s))
    return taken * 8 / max(took_s, 1e-6)


def _received(line: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        piece = line.recv(size - len(content))
        if not piece:
            raise ConnectionError("the other machine has hung up")
        content += piece
    return bytes(content)
