"""A machine that answers nothing is given up, in a time that is known; one that is slow is not."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from wanbed.testbed.rack.clocks.clock_port import ClockPort
from wanbed.testbed.rack.driver import pulse
from wanbed.testbed.rack.driver.pulse import BEAT_S, KERNEL_S, SILENT_BEATS, STUCK_BEATS, Pulse
from wanbed.testbed.rack.machine.machine import LEASE_S
from wanbed.testbed.rack.machine_handle import MachineLostError

QUICK_S = 0.01


class Call:
    def __init__(self, machine: "Silent") -> None:
        self._machine = machine

    def result(self, timeout_s: float | None = None) -> int:
        if not self._machine.answers:
            raise TimeoutError
        return 0


class Silent:
    """The handle of a machine; ``answers`` is whether calls are answered, ``has_kernel`` whether its kernel does."""

    name = "node0"

    def __init__(self) -> None:
        self.answers, self.has_kernel = False, False

    def call(self, method: str, *arguments: Any) -> Any:
        return self.start_call(method, *arguments).result()

    def start_call(self, method: str, *arguments: Any) -> Call:
        assert method == "clock_ns"
        return Call(self)

    def datagram_socket(self) -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def is_reachable(self, timeout_s: float) -> bool:
        return self.has_kernel


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "BEAT_S", QUICK_S)


@pytest.fixture
def port() -> Iterator[ClockPort]:
    port = ClockPort("127.0.0.1")
    yield port
    port.close()


def beats_until_lost(pulse: Pulse) -> int:
    for beat in range(1, 2 * STUCK_BEATS):
        try:
            pulse.beat()
        except MachineLostError:
            return beat
    raise AssertionError("it was not given up")


def test_power_off_is_noticed_and_leaves_half_of_the_time_to_end_the_others() -> None:
    assert SILENT_BEATS * BEAT_S + KERNEL_S + BEAT_S < 15
    assert LEASE_S * 1.1 < 15


def test_a_machine_without_power_is_given_up_after_so_many_questions() -> None:
    assert beats_until_lost(Pulse(Silent(), None)) == SILENT_BEATS


def test_datagrams_that_are_not_answered_do_not_keep_it(port: ClockPort) -> None:
    port.close()
    assert beats_until_lost(Pulse(Silent(), port.place)) == SILENT_BEATS


def test_a_machine_whose_kernel_answers_has_more_time() -> None:
    machine = Silent()
    machine.has_kernel = True
    assert beats_until_lost(Pulse(machine, None)) == STUCK_BEATS


def test_an_answer_to_a_datagram_is_enough(port: ClockPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "BEAT_S", 5.0)
    life = Pulse(Silent(), port.place)
    for _ in range(2 * STUCK_BEATS):
        life.beat()
    life.close()


def test_an_answer_to_a_call_is_enough_and_any_answer_begins_anew() -> None:
    machine = Silent()
    life = Pulse(machine, None)
    for _ in range(4):
        machine.answers = False
        for _ in range(SILENT_BEATS - 1):
            life.beat()
        machine.answers = True
        life.beat()


def test_the_answer_to_an_earlier_question_counts() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as slow:
        slow.bind(("127.0.0.1", 0))
        port = ClockPort("127.0.0.1")
        port.close()
        place = port.place.__class__("127.0.0.1", slow.getsockname()[1], port.place.key)
        life = Pulse(Silent(), place)
        for _ in range(SILENT_BEATS - 1):
            life.beat()
        question, asker = slow.recvfrom(100)
        slow.sendto(question[16:24] + bytes(16), asker)
        for _ in range(SILENT_BEATS):
            life.beat()
        life.close()
