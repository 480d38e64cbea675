"""As a program, beside the head of a cluster: follow the clocks of its machines for some seconds, as during a trial.

The arguments are the cluster's address and the seconds. It prints one JSON document: the line of each machine's clock,
and what the processor's counter showed at the driver's times before and after.
"""

import json
import sys
import time
from dataclasses import asdict

from runner.rack.agents import agents_on
from runner.rack.ray_handle import RayHandle
from runner.rack.same_sources import rack_at
from testbed.rack.clock_port import ClockPlace, ClockPort, ClockQuestions
from testbed.rack.driver.machine_clock import MachineClock
from tests.support.rack.processor_time import ProcessorTime

_HEARTBEAT_S = 1.0


class ClockMachine:
    """A machine that answers for its clock, without a lease."""

    def __init__(self, address: str) -> None:
        self._port = ClockPort(address)

    def clock_place(self) -> ClockPlace:
        return self._port.place


def main(address: str, seconds: str) -> None:
    processor = ProcessorTime()
    with (
        rack_at(address, lambda line: print(line, file=sys.stderr)) as rack,
        agents_on(rack.carrying, "clocks", machine="tests.support.rack.followed_clocks:ClockMachine") as handles,
    ):
        clocks = {name: MachineClock(_questions(handle).clock_ns) for name, handle in handles.items()}
        before = processor.read()
        for clock in clocks.values():
            clock.begin()
        until_s = time.monotonic() + float(seconds)
        while time.monotonic() < until_s:
            time.sleep(_HEARTBEAT_S)
            for clock in clocks.values():
                clock.meanwhile()
        lines = {name: asdict(clock.end()) for name, clock in clocks.items()}
        print(json.dumps({"lines": lines, "readings": [asdict(before), asdict(processor.read())]}))


def _questions(handle: RayHandle) -> ClockQuestions:
    def never() -> int:
        raise RuntimeError(f"{handle.name} does not answer datagrams")

    return ClockQuestions(handle.call("clock_place"), handle.datagram_socket(), never)


if __name__ == "__main__":
    main(*sys.argv[1:])
