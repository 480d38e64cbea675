"""What the kernel does with the options that ranks set, between two sockets of this machine."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from wanbed.workloads.transport.peer import TransportError
from wanbed.workloads.transport.socket_options import hold_window, make_socket

LOOPBACK = "127.0.0.1"
WINDOW_BYTES = 32 * 1024
SEGMENT_BYTES = 1448
"""As on the networks that testbeds make; the loopback's own would be larger than the window."""
_SEND_WINDOW_OFFSET = 228
"""Of ``tcpi_snd_wnd`` in the kernel's ``tcp_info``."""


@contextmanager
def connected(port: int, window_bytes: int | None) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A sender that does not wait, and a receiver made with that window."""
    with (
        make_socket(LOOPBACK, port, window_bytes) as listener,
        make_socket(LOOPBACK, 0, window_bytes) as sender,
    ):
        for each in (listener, sender):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
            each.setblocking(True)
        listener.listen()
        sender.connect((LOOPBACK, port))
        receiver, _ = listener.accept()
        with receiver:
            sender.setblocking(False)
            yield sender, receiver


def fill(sender: socket.socket) -> None:
    """Send until the kernel takes no more."""
    try:
        while True:
            sender.send(bytes(256 * 1024))
    except BlockingIOError:
        pass


def widest_window(sender: socket.socket, receiver: socket.socket, *, hold: bool) -> int:
    """The widest window that the sender is given after the first few chunks, when the receiver reads 100 more."""
    widest = 0
    for chunk in range(110):
        fill(sender)
        receiver.recv(16 * 1024)
        if hold:
            hold_window(receiver, WINDOW_BYTES)
        info = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        (window_bytes,) = struct.unpack_from("I", info, _SEND_WINDOW_OFFSET)
        if chunk >= 10:
            widest = max(widest, window_bytes)
    return widest


def test_a_held_window_stays_as_configured(free_port: int) -> None:
    with connected(free_port, WINDOW_BYTES) as (sender, receiver):
        assert WINDOW_BYTES / 2 < widest_window(sender, receiver, hold=True) <= WINDOW_BYTES


def test_the_kernel_widens_a_window_that_is_not_held(free_port: int) -> None:
    with connected(free_port, WINDOW_BYTES) as (sender, receiver):
        assert widest_window(sender, receiver, hold=False) > WINDOW_BYTES


def test_without_a_configured_window_the_kernel_chooses(free_port: int) -> None:
    with connected(free_port, None) as (sender, receiver):
        assert widest_window(sender, receiver, hold=False) > WINDOW_BYTES


def test_neither_unread_data_nor_the_send_buffer_narrows_the_window() -> None:
    with make_socket(LOOPBACK, 0, WINDOW_BYTES) as made:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            assert made.getsockopt(socket.SOL_SOCKET, option) >= 4 * WINDOW_BYTES
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP) == WINDOW_BYTES


def test_a_connection_has_the_congestion_control_that_is_asked_for() -> None:
    with make_socket(LOOPBACK, 0, congestion="reno") as made:
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"reno"


def test_a_congestion_control_that_the_kernel_lacks_is_named() -> None:
    with pytest.raises(TransportError, match=r"refuses the congestion control 'fancy'.*: load the module tcp_fancy"):
        make_socket(LOOPBACK, 0, congestion="fancy")
