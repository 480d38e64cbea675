"""Clocks of machines that drift apart: User-Mode Linux guests whose kernels are steered.

The truth is the processor's counter, which all kernels of this computer read.
"""

import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.support.rack.guests.guest_commands import GuestCommand
from tests.support.rack.guests.guest_machine import GuestMachine
from tests.support.rack.guests.guest_wire import GuestWire
from tests.support.rack.guests.processor_time import ProcessorTime, Reading, clock_ns_at
from tests.support.until import until_within
from wanbed.testbed.kernel.namespace import inside
from wanbed.testbed.rack.clock_line import ClockLine
from wanbed.testbed.rack.clock_port import ClockPlace, ClockQuestions
from wanbed.testbed.rack.driver.machine_clock import MachineClock
from wanbed.testbed.substrate.probe import probe_guest

# The arithmetic of clocks is tested in tests/testbed/rack; this boots two guests and waits.
pytestmark = [pytest.mark.measures, pytest.mark.soak]

DRIFTS_PPM = (50.0, -50.0)
STEP_MS = 100
"""The wall clocks are stepped by this. The monotonic ones, which spans have, differ by more: since their boot."""
STATED_NS = 200_000
FOLLOWED_S, HEARTBEAT_S, PATIENCE_S = 10, 1.0, 30
MEMORY_MIB = 512

ANSWER = """
import json, sys
from wanbed.testbed.rack.clock_port import ClockPort
place = ClockPort(sys.argv[1]).place
print(json.dumps([place.address, place.port, place.key.hex()]), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module", autouse=True)
def _offered() -> None:
    offer = probe_guest()
    if not offer.available:
        pytest.skip(f"no User-Mode Linux: {offer.reason}")


@contextmanager
def followed(wire: GuestWire, machine: GuestMachine) -> Iterator[MachineClock]:
    """Yield the clock of a machine that answers for it, as a leased machine does."""

    def never() -> int:
        raise TimeoutError(f"{machine.name} does not answer datagrams")

    with machine.start([sys.executable, "-c", ANSWER, machine.address], has_input=True) as answering:
        until_within(PATIENCE_S, lambda: "\n" in answering.output())
        address, port, key = json.loads(answering.output())
        with inside(wire.namespace):
            datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        questions = ClockQuestions(ClockPlace(address, port, bytes.fromhex(key)), datagrams, never)
        try:
            yield MachineClock(questions.clock_ns)
        finally:
            questions.close()


def reading_of(command: GuestCommand) -> Reading:
    """Ask a machine for a reading."""
    known = len(command.output().splitlines())
    command.send("")
    until_within(PATIENCE_S, lambda: len(command.output().splitlines()) > known)
    return Reading(*json.loads(command.output().splitlines()[known]))


def follow(clocks: list[MachineClock]) -> list[ClockLine]:
    """Follow the clocks as during a trial."""
    for clock in clocks:
        clock.begin()
    for _ in range(FOLLOWED_S):
        time.sleep(HEARTBEAT_S)
        for clock in clocks:
            clock.meanwhile()
    return [clock.line() for clock in clocks]


def test_clocks_that_drift_apart_are_known_within_the_stated_error_and_a_fifth_of_a_millisecond() -> None:
    processor = ProcessorTime()
    with ExitStack() as up:
        wire = up.enter_context(GuestWire())
        machines = [GuestMachine(wire, number, memory_mib=MEMORY_MIB) for number in range(len(DRIFTS_PPM))]
        steered = []
        for machine, drift_ppm in zip(machines, DRIFTS_PPM, strict=True):
            up.enter_context(machine)
            argv = [sys.executable, "-m", "tests.support.rack.guests.processor_time", str(drift_ppm), str(STEP_MS)]
            steered.append(up.enter_context(machine.start(argv, has_input=True)))
        clocks = [up.enter_context(followed(wire, machine)) for machine in machines]
        before, own_before = processor.read(), [reading_of(each) for each in steered]
        lines = follow(clocks)
        after, own_after = processor.read(), [reading_of(each) for each in steered]
    driver = [before, after]
    for line, drift_ppm, first, last in zip(lines, DRIFTS_PPM, own_before, own_after, strict=True):
        elapsed_ns = clock_ns_at(last.counter, driver) - clock_ns_at(first.counter, driver)
        assert (last.clock_ns - first.clock_ns) / elapsed_ns - 1 == pytest.approx(drift_ppm / 1e6, abs=5e-6)
        assert abs(line.offset_ns) > STEP_MS * 1e6
        for part in range(1, 10):
            counter = before.counter + (after.counter - before.counter) * part // 10
            off_ns = line.driver_ns(round(clock_ns_at(counter, [first, last]))) - clock_ns_at(counter, driver)
            print(f"{line.facts()}: off {off_ns / 1e3:.0f} us")
            assert abs(off_ns) <= line.error_ns
        assert line.error_ns < STATED_NS
