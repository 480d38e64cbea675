import pytest

from wanbed.testbed.network.tcp_settings import BUFFER_PER_WINDOW, TcpSettings
from wanbed.workloads.transport import socket_options


def test_a_namespace_starts_small_and_lets_buffers_grow_until_a_kernel_has_the_window_in_flight() -> None:
    # In pages: 1 MiB is 0.7 of 1,497,966 bytes.
    assert TcpSettings(window_bytes=2**20).sysctls()["net.ipv4.tcp_rmem"] == "4096 131072 1499136"


def test_a_namespace_that_makes_room_gives_every_socket_what_a_held_window_takes() -> None:
    settings = TcpSettings(window_bytes=2**20)
    room_bytes = BUFFER_PER_WINDOW * settings.window_bytes
    room = dict.fromkeys(("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"), f"4096 {room_bytes} {room_bytes}")
    assert settings.sysctls(makes_room=True) == {**settings.sysctls(), **room}


def test_receivers_ask_for_as_much_as_the_namespace_gives() -> None:
    assert socket_options._BUFFER_PER_WINDOW == BUFFER_PER_WINDOW


def test_a_stock_host_has_a_buffer_of_6_mib_of_which_seven_tenths_may_be_in_flight() -> None:
    stock = TcpSettings()
    assert (stock.window_bytes, stock.buffer_bytes) == (4_403_200, 6_291_456)
    assert stock.sysctls() == {
        "net.ipv4.tcp_rmem": "4096 131072 6291456",
        "net.ipv4.tcp_wmem": "4096 16384 12582912",
        "net.ipv4.tcp_congestion_control": "cubic",
        "net.ipv4.tcp_slow_start_after_idle": "1",
        "net.ipv4.tcp_no_metrics_save": "1",
    }


def test_a_small_window_is_the_first_buffer_too() -> None:
    sysctls = TcpSettings(10_000, slow_start_after_idle=False).sysctls()
    assert sysctls["net.ipv4.tcp_rmem"] == "4096 16384 16384"
    assert sysctls["net.ipv4.tcp_wmem"] == "4096 16384 32768"
    assert sysctls["net.ipv4.tcp_slow_start_after_idle"] == "0"


@pytest.mark.parametrize(
    ("congestion", "restarts", "leaves"), [("cubic", True, True), ("reno", True, False), ("bbr", False, False)]
)
def test_bbr_goes_on_after_a_pause_and_only_cubic_leaves_slow_start_early(
    congestion: str, restarts: bool, leaves: bool
) -> None:
    settings = TcpSettings(congestion=congestion)
    assert (settings.restarts_after_idle, settings.leaves_slow_start_early) == (restarts, leaves)
    assert not TcpSettings(congestion=congestion, slow_start_after_idle=False).restarts_after_idle
