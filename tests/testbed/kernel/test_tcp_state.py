"""Parsing of a connection's state, checked against the message layout of a general netlink library."""

import socket
import struct
from typing import Any

import pytest
from pyroute2.netlink.diag import inet_diag_msg

from wanbed.testbed.kernel import tcp_state
from wanbed.testbed.kernel.missing import MissingError
from wanbed.testbed.kernel.tcp_state import TcpState, TcpStateReader, tcp_states

FIELDS: list[tuple[str, str]] = list(inet_diag_msg.tcp_info.fields)
HOSTS = {"10.1.0.2": "east-0", "10.1.1.2": "west-0"}


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def information(**changes: int) -> bytes:
    """``tcp_info`` whose every field has a value of its own."""
    values = {name: number + 1 for number, (name, _) in enumerate(FIELDS)} | changes
    return b"".join(struct.pack(f"={kind}", values[name]) for name, kind in FIELDS)


def message(
    info: bytes, source: str = "10.1.0.2", destination: str = "10.1.1.2", congestion: bytes = b"cubic\0"
) -> Any:
    ends = struct.pack(">HH", 41000, 20001) + b"".join(
        socket.inet_aton(address) + bytes(12) for address in (source, destination)
    )
    head = struct.pack("=BBBB", socket.AF_INET, 1, 0, 0) + ends + bytes(32)
    return memoryview(head + attribute(2, info) + attribute(4, congestion))


def value(name: str) -> int:
    return [field for field, _ in FIELDS].index(f"tcpi_{name}") + 1


def test_every_field_is_the_kernels_in_nanoseconds_and_bits_per_second() -> None:
    (state,) = tcp_states([message(information())], HOSTS)
    assert state == TcpState(
        source="east-0",
        destination="west-0",
        source_port=41000,
        destination_port=20001,
        congestion="cubic",
        rtt_ns=value("rtt") * 1000,
        rtt_variation_ns=value("rttvar") * 1000,
        shortest_rtt_ns=value("min_rtt") * 1000,
        cwnd_segments=value("snd_cwnd"),
        mss_bytes=value("snd_mss"),
        unacked_segments=value("unacked"),
        unsent_bytes=value("notsent_bytes"),
        peer_window_bytes=value("snd_wnd"),
        delivery_rate_bps=value("delivery_rate") * 8,
        delivery_app_limited=value("delivery_rate_app_limited") % 2 == 1,
        acked_bytes=value("bytes_acked"),
        sent_bytes=value("bytes_sent"),
        retransmitted_segments=value("total_retrans"),
        window_limited_ns=value("rwnd_limited") * 1000,
        buffer_limited_ns=value("sndbuf_limited") * 1000,
    )


def test_values_the_kernel_has_not_measured_are_none() -> None:
    (state,) = tcp_states([message(information(tcpi_min_rtt=2**32 - 1, tcpi_delivery_rate=0))], HOSTS)
    assert (state.shortest_rtt_ns, state.delivery_rate_bps) == (None, None)


@pytest.mark.parametrize(("flags", "limited"), [(0b0, False), (0b1, True), (0b110, False), (0b111, True)])
def test_only_the_first_flag_means_application_limited(flags: int, limited: bool) -> None:
    (state,) = tcp_states([message(information(tcpi_delivery_rate_app_limited=flags))], HOSTS)
    assert state.delivery_app_limited is limited


def test_longer_tcp_info_of_a_newer_kernel_is_accepted() -> None:
    assert tcp_states([message(information() + bytes(64))], HOSTS) == tcp_states([message(information())], HOSTS)


def test_too_short_a_tcp_info_is_an_error() -> None:
    with pytest.raises(OSError, match="reported 228 bytes of a connection's state"):
        tcp_states([message(information()[:228])], HOSTS)


@pytest.mark.parametrize(
    ("source", "destination"), [("127.0.0.1", "127.0.0.1"), ("10.1.0.2", "10.9.9.9"), ("10.1.0.2", "10.1.0.2")]
)
def test_a_connection_that_joins_no_two_hosts_is_left_out(source: str, destination: str) -> None:
    assert tcp_states([message(information(), source, destination)], HOSTS) == []


class Asked:
    """Stands for a namespace's netlink socket."""

    def __init__(self, namespace: str, _: int) -> None:
        self.namespace = namespace
        self.open = True

    def ask(self, _kind: int, _body: bytes) -> list[memoryview]:
        assert self.open
        if self.namespace == "without":
            raise FileNotFoundError(2, "No such file or directory")
        return [memoryview(self.namespace.encode())]

    def close(self) -> None:
        self.open = False


@pytest.fixture(autouse=True)
def _no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_state, "NetlinkDump", Asked)


def test_tcp_state_is_read_from_every_host() -> None:
    assert [bytes(text) for text in TcpStateReader(["one", "other"]).read()] == [b"one", b"other"]


def test_a_kernel_without_socket_diagnosis_is_reported_with_its_remedy() -> None:
    with pytest.raises(MissingError, match="modprobe tcp_diag"):
        TcpStateReader(["one", "without"]).read()
