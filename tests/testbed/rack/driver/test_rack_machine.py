"""A machine followed by its driver: given up when it answers nothing, in a known time, and not when it is slow."""

import select
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.until import until_within
from wanbed.testbed.rack.clock_port import ClockPort
from wanbed.testbed.rack.driver import rack_machine
from wanbed.testbed.rack.driver.leasing import leased
from wanbed.testbed.rack.driver.rack_machine import (
    BEAT_S,
    KERNEL_S,
    SILENT_BEATS,
    STUCK_BEATS,
    Pulse,
    RackMachine,
    RemoteProcess,
    RemoteProgram,
)
from wanbed.testbed.rack.machine.machine import LEASE_S
from wanbed.testbed.rack.machine_handle import LeaseFacts, MachineLostError, ProgramOrder

ENDED_NS = 40 * 10**9


class Answered:
    """A call that is answered at once, or never if ``answers`` are silent."""

    def __init__(self, answers: "Answers", method: str, arguments: tuple[Any, ...]) -> None:
        self._silent = answers.silent
        self._fault: MachineLostError | None = None
        if not self._silent:
            try:
                self._value = answers.call(method, *arguments)
            except MachineLostError as fault:
                self._fault = fault

    def result(self, timeout_s: float | None = None) -> Any:
        if self._silent:
            assert timeout_s is not None
            time.sleep(timeout_s)
            raise TimeoutError
        if self._fault is not None:
            raise self._fault
        return self._value


class Answers:
    """The handle of a machine whose processes end when a test says so.

    ``gone`` is whether it is known to answer no more, ``silent`` whether it does not answer.
    """

    def __init__(self, name: str = "node0") -> None:
        self.name = name
        self.called: list[str] = []
        self.silent = False
        self.started: list[tuple[str, ProgramOrder]] = []
        self.printed: dict[int, bytes] = {}
        self.ended: dict[int, int] = {}
        self.killed: list[tuple[int, int]] = []
        self.gone = False
        self._changed = threading.Event()

    def call(self, method: str, *arguments: Any) -> Any:
        self.called.append(method)
        if self.gone:
            raise MachineLostError(f"machine {self.name} has gone")
        return getattr(self, f"_{method}")(*arguments)

    def datagram_socket(self) -> None:
        return None

    def is_reachable(self, timeout_s: float) -> bool:
        return not self.silent

    def start_call(self, method: str, *arguments: Any) -> Answered:
        return Answered(self, method, arguments)

    def _bring_up(self, order: object) -> LeaseFacts:
        return LeaseFacts("6.1", "/run/wanbed/1/files", 7)

    def _take_down(self) -> None:
        self.ended = dict.fromkeys(range(1, len(self.started) + 1), -9)

    def _start(self, host: str, program: ProgramOrder) -> int:
        self.started.append((host, program))
        return len(self.started)

    def _wait(self, numbers: list[int], timeout_s: float) -> dict[int, int]:
        if not any(number in self.ended for number in numbers):
            time.sleep(0.01)
        return {number: self.ended[number] for number in numbers if number in self.ended}

    def _ended_ns(self, number: int) -> int:
        return ENDED_NS

    def _output(self, number: int, offset: int) -> bytes:
        return self.printed.get(number, b"")[offset:]

    def _kill(self, number: int, signal_number: int) -> None:
        self.killed.append((number, signal_number))
        self.ended[number] = -signal_number

    def _clock_ns(self) -> int:
        return time.monotonic_ns()


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def machine(answers: Answers) -> Iterator[RackMachine]:
    machine = RackMachine(answers, LeaseFacts("6.1", "/run/wanbed/1/files", 7))
    yield machine
    machine.close()


def start(machine: RackMachine, kind: type[RemoteProcess] = RemoteProcess) -> RemoteProcess:
    return machine.start("east-0", ProgramOrder(argv=("true",)), lambda number: kind(number, machine))


def test_the_end_of_a_process_is_readable_and_waited_for(machine: RackMachine, answers: Answers) -> None:
    process = start(machine)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    answers.ended[1] = 3
    assert process.wait(10) == 3
    assert select.select([process], [], [], 0)[0] == [process]


def test_what_belongs_to_the_end_is_done_before_anybody_learns_of_it(machine: RackMachine, answers: Answers) -> None:
    seen: list[int | None] = []
    process = machine.start(
        "east-0",
        ProgramOrder(),
        lambda number: RemoteProcess(number, machine),
        lambda _: seen.append(process.returncode),
    )
    answers.ended[1] = 0
    assert process.wait(10) == 0
    assert seen == [None]


def test_the_end_of_a_process_is_timed_by_its_machine(machine: RackMachine, answers: Answers) -> None:
    machine.clock.ahead_ns = 7
    process = start(machine)
    answers.ended[1] = 0
    process.wait(10)
    assert process.ended_ns == ENDED_NS - 7


def test_a_process_is_killed_once(machine: RackMachine, answers: Answers) -> None:
    process = start(machine)
    process.kill()
    assert process.wait(10) == -9
    process.terminate()
    assert answers.killed == [(1, 9)]


def test_the_lines_of_a_program_come_while_it_runs(machine: RackMachine, answers: Answers) -> None:
    program = start(machine, RemoteProgram)
    assert isinstance(program, RemoteProgram)
    answers.printed[1] = b"one\ntw"
    lines = iter(program.stdout)
    assert next(lines) == "one\n"
    answers.printed[1] += b"o\nthree"
    assert next(lines) == "two\n"
    answers.ended[1] = 0
    assert [*lines] == ["three"]
    assert program.communicate(timeout=10) == ("one\ntwo\nthree", None)


def test_the_processes_of_a_machine_that_has_gone_are_killed(machine: RackMachine, answers: Answers) -> None:
    process = start(machine)
    answers.gone = True
    assert process.wait(10) == -9
    with pytest.raises(MachineLostError, match=r"^machine node0 has gone$"):
        machine.check()
    process.kill()


def test_whatever_fails_in_following_a_machine_is_not_silent(machine: RackMachine, answers: Answers) -> None:
    process = start(machine)
    answers.ended = None  # type: ignore[assignment]
    assert process.wait(10) == -9
    with pytest.raises(MachineLostError, match=r"^machine node0: "):
        machine.call("clock_ns")


def test_a_machine_with_nothing_to_do_is_called_to_keep_its_lease(answers: Answers) -> None:
    machine = RackMachine(answers, LeaseFacts("6.1", "", 7))
    until_within(10, lambda: "clock_ns" in answers.called)
    machine.close()


def test_who_waits_for_an_answer_of_a_machine_that_has_gone_is_told(machine: RackMachine, answers: Answers) -> None:
    answers.silent = True
    asked = machine.start_call("output", 1, 0)
    with pytest.raises(TimeoutError):
        asked.result(0.01)
    threading.Timer(0.1, machine.end_with, [MachineLostError("machine node1 has gone")]).start()
    with pytest.raises(MachineLostError, match=r"^machine node1 has gone$"):
        asked.result()


def test_when_a_machine_goes_the_others_are_taken_down_at_once_and_what_fails_there_is_its_fault() -> None:
    one, other = Answers("node0"), Answers("node1")
    with leased([one, other], {"node0": None, "node1": None}) as held:  # type: ignore[dict-item]
        process = start(held["node1"])
        one.gone = True
        assert process.wait(10) == -9
        until_within(10, lambda: "take_down" in other.called)
        with pytest.raises(MachineLostError, match=r"^machine node0 has gone$"):
            held["node1"].call("clock_ns")
    assert other.called.count("take_down") == 1
    assert "take_down" not in one.called


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


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rack_machine, "BEAT_S", QUICK_S)


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


@pytest.mark.usefixtures("quick")
def test_a_machine_without_power_is_given_up_after_so_many_questions() -> None:
    assert beats_until_lost(Pulse(Silent(), None)) == SILENT_BEATS


@pytest.mark.usefixtures("quick")
def test_datagrams_that_are_not_answered_do_not_keep_it(port: ClockPort) -> None:
    port.close()
    assert beats_until_lost(Pulse(Silent(), port.place)) == SILENT_BEATS


@pytest.mark.usefixtures("quick")
def test_a_machine_whose_kernel_answers_has_more_time() -> None:
    machine = Silent()
    machine.has_kernel = True
    assert beats_until_lost(Pulse(machine, None)) == STUCK_BEATS


@pytest.mark.usefixtures("quick")
def test_an_answer_to_a_datagram_is_enough(port: ClockPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rack_machine, "BEAT_S", 5.0)
    life = Pulse(Silent(), port.place)
    for _ in range(2 * STUCK_BEATS):
        life.beat()
    life.close()


@pytest.mark.usefixtures("quick")
def test_an_answer_to_a_call_is_enough_and_any_answer_begins_anew() -> None:
    machine = Silent()
    life = Pulse(machine, None)
    for _ in range(4):
        machine.answers = False
        for _ in range(SILENT_BEATS - 1):
            life.beat()
        machine.answers = True
        life.beat()


@pytest.mark.usefixtures("quick")
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
