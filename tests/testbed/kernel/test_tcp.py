"""TCP of the kernel; the parsing of a connection's state is checked against a general netlink library's layout."""

import errno
import os
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
from pyroute2.netlink.diag import inet_diag_msg

from wanbed.ground.errors import MissingError
from wanbed.ground.socket_owner import TcpListener
from wanbed.testbed.kernel import tcp
from wanbed.testbed.kernel.tcp import (
    ListeningSockets,
    TcpState,
    TcpStateReader,
    allow_congestion_control,
    available_congestion_controls,
    tcp_states,
)

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


@pytest.fixture
def no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "NetlinkDump", Asked)


@pytest.mark.usefixtures("no_namespaces")
def test_tcp_state_is_read_from_every_host() -> None:
    assert [bytes(text) for text in TcpStateReader(["one", "other"]).read()] == [b"one", b"other"]


@pytest.mark.usefixtures("no_namespaces")
def test_a_kernel_without_socket_diagnosis_is_reported_with_its_remedy() -> None:
    with pytest.raises(MissingError, match="modprobe tcp_diag"):
        TcpStateReader(["one", "without"]).read()


@pytest.mark.parametrize("by_netlink", [True, False])
def test_a_socket_is_found_with_its_user_while_it_listens(by_netlink: bool) -> None:
    sockets = ListeningSockets()
    if not by_netlink:
        sockets.close()
    with socket.create_server(("127.0.0.9", 0)) as listener, socket.create_connection(listener.getsockname()):
        own = TcpListener(*listener.getsockname(), os.geteuid())
        assert own in sockets.read()
    assert own not in sockets.read()
    sockets.close()


@pytest.fixture(autouse=True)
def allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine-wide list, of a kernel that has three and lets namespaces use one."""
    (tmp_path / "available").write_text("reno cubic bbr\n")
    allowed = tmp_path / "allowed"
    allowed.write_text("reno\n")
    monkeypatch.setattr(tcp, "_AVAILABLE", tmp_path / "available")
    monkeypatch.setattr(tcp, "_ALLOWED", allowed)
    return allowed


def test_what_the_kernel_has_is_listed() -> None:
    assert available_congestion_controls() == ("reno", "cubic", "bbr")


def test_allowing_one_keeps_those_that_were_allowed(allowed: Path) -> None:
    allow_congestion_control("bbr")
    assert allowed.read_text().split() == ["reno", "bbr"]


def test_one_that_is_allowed_already_is_not_written_again(allowed: Path) -> None:
    allowed.chmod(0o444)
    before = allowed.stat().st_mtime_ns
    allow_congestion_control("reno")
    assert allowed.stat().st_mtime_ns == before


def test_one_that_this_user_may_not_allow_is_refused_with_the_command_for_root(
    allowed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Listed(type(allowed)):  # type: ignore[misc]
        def write_text(self, *_: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tcp, "_ALLOWED", Listed(allowed))
    with pytest.raises(MissingError, match=r"as root: sysctl net\.ipv4\.tcp_allowed_congestion_control='reno bbr'$"):
        allow_congestion_control("bbr")


def test_missing_congestion_control_is_refused_with_a_remedy(allowed: Path) -> None:
    text = r"^congestion control 'vegas' is not in this kernel, which has reno, cubic, bbr: modprobe tcp_vegas"
    with pytest.raises(MissingError, match=text):
        allow_congestion_control("vegas")
    assert allowed.read_text() == "reno\n"
