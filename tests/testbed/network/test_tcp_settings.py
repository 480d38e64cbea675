from testbed.network.tcp_settings import BUFFER_PER_WINDOW, TcpSettings
from workloads.transport import socket_options


def test_a_namespace_starts_small_and_lets_buffers_grow_to_the_window() -> None:
    assert TcpSettings(window_bytes=2**20).sysctls()["net.ipv4.tcp_rmem"] == "4096 131072 1048576"


def test_a_namespace_that_makes_room_gives_every_socket_what_a_held_window_takes() -> None:
    settings = TcpSettings(window_bytes=2**20)
    room_bytes = BUFFER_PER_WINDOW * settings.in_flight_bytes
    assert settings.sysctls(makes_room=True)["net.ipv4.tcp_rmem"] == f"4096 {room_bytes} {room_bytes}"
    assert {**settings.sysctls(makes_room=True), "net.ipv4.tcp_rmem": ""} == {
        **settings.sysctls(),
        "net.ipv4.tcp_rmem": "",
    }


def test_receivers_ask_for_as_much_as_the_namespace_gives() -> None:
    assert socket_options._BUFFER_PER_WINDOW == BUFFER_PER_WINDOW
