import socket
import threading

import pytest

from wanbed.testbed.rack.machine.plain_network import PlainListener, measure_plain

TOKEN = "0123456789abcdef"  # noqa: S105 - of this test


def listening(token: str = TOKEN) -> tuple[PlainListener, threading.Thread, list[BaseException]]:
    listener = PlainListener("127.0.0.1", token)
    faults: list[BaseException] = []

    def answer() -> None:
        try:
            listener.answer()
        except OSError as fault:
            faults.append(fault)

    thread = threading.Thread(target=answer)
    thread.start()
    return listener, thread, faults


def test_both_directions_and_the_rtt_are_measured() -> None:
    listener, thread, faults = listening()
    found = measure_plain("127.0.0.1", listener.port, TOKEN)
    thread.join()
    assert faults == []
    assert 0 < found["rtt_ms"] < 1000
    assert found["out_bps"] > 1e6
    assert found["in_bps"] > 1e6


def test_a_stranger_is_sent_nothing() -> None:
    listener, thread, faults = listening()
    with socket.create_connection(("127.0.0.1", listener.port)) as stranger:
        stranger.sendall(b"x" * len(TOKEN))
        assert stranger.recv(1) == b""
    thread.join()
    assert isinstance(faults[0], PermissionError)


def test_a_machine_that_does_not_listen_is_an_error() -> None:
    listener, thread, _ = listening()
    port = listener.port
    measure_plain("127.0.0.1", port, TOKEN)
    thread.join()
    with pytest.raises(OSError, match="refused"):
        measure_plain("127.0.0.1", port, TOKEN)
