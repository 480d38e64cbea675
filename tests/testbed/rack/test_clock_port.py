"""A machine's clock is asked for by datagrams, by its driver alone, and by calls where datagrams do not arrive."""

import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from wanbed.testbed.rack.clock_port import ClockPlace, ClockPort, ClockQuestions

CALLED_NS = -1


@pytest.fixture
def port() -> Iterator[ClockPort]:
    port = ClockPort("127.0.0.1")
    yield port
    port.close()


def questions(place: ClockPlace | None) -> ClockQuestions:
    datagrams = None if place is None else socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    return ClockQuestions(place, datagrams, lambda: CALLED_NS)


def test_the_answer_is_the_machines_time(port: ClockPort) -> None:
    driver = questions(port.place)
    for _ in range(3):
        before_ns = time.monotonic_ns()
        assert before_ns <= driver.clock_ns() <= time.monotonic_ns()
    driver.close()


def test_each_question_is_a_sign_of_life_of_the_driver() -> None:
    asked: list[int] = []
    port = ClockPort("127.0.0.1", lambda: asked.append(1))
    questions(port.place).clock_ns()
    questions(replace(port.place, key=b"0" * 16)).clock_ns()
    port.close()
    assert asked == [1]


def test_a_port_that_has_answered_once_is_asked_again_after_a_silence(port: ClockPort) -> None:
    driver = questions(port.place)
    assert driver.clock_ns() != CALLED_NS
    port.close()
    assert driver.clock_ns() == CALLED_NS
    assert driver.by_datagrams


def test_who_has_not_the_key_gets_no_answer(port: ClockPort) -> None:
    stranger = questions(replace(port.place, key=b"0" * 16))
    assert stranger.clock_ns() == CALLED_NS


@pytest.mark.parametrize("noise", [b"", b"short", b"x" * 1000])
def test_what_is_no_question_is_not_answered_and_ends_nothing(port: ClockPort, noise: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as somebody:
        somebody.sendto(noise, (port.place.address, port.place.port))
    driver = questions(port.place)
    assert driver.clock_ns() > 0
    driver.close()


def test_answers_of_others_are_not_taken(port: ClockPort) -> None:
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as somebody:
        somebody.sendto(b"\0" * 24, datagrams.getsockname())
    driver = ClockQuestions(port.place, datagrams, lambda: CALLED_NS)
    assert driver.clock_ns() > 0
    driver.close()


def test_without_an_answer_calls_are_left() -> None:
    port = ClockPort("127.0.0.1")
    port.close()
    driver = questions(port.place)
    assert driver.clock_ns() == CALLED_NS
    assert driver.clock_ns() == CALLED_NS


def test_a_machine_without_a_port_is_called() -> None:
    assert questions(None).clock_ns() == CALLED_NS
