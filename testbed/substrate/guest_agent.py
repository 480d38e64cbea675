"""Build the gateways inside the gateway guest and answer the host's requests. This is the guest's only program.

Requests are lines on the guest's second console. Each gets one line of JSON: the answer itself if it is short,
otherwise ``{"file": name}`` for a file in the shared folder, because a console stalls on long lines.
"""

import ctypes
import errno
import json
import os
import sys
import time
import tty
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from wanbed.testbed.kernel.course_run import KernelCourses
from wanbed.testbed.kernel.gateway_programming import GatewayProgrammer, host_interface
from wanbed.testbed.kernel.namespace import anonymous_namespace, open_netlink
from wanbed.testbed.network.gateway_plan import GatewayPlan

_CONSOLE = "/dev/tty1"
PLAN_FILE = "gateways.json"
_FILE_ATTEMPTS = 5
"""Attempts to write one answer: in a busy guest about one of 1000 files in the shared folder failed (EIO)."""
LONGEST_LINE_BYTES = 2048
_POWER_OFF = 0x4321FEDC


def main(folder: Path) -> None:
    """Build the gateways of the plan in ``folder``, report, and serve until ``stop`` or until the host disconnects."""
    console = os.open(_CONSOLE, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(console)
    answers = Answers(console, folder)
    try:
        plan = GatewayPlan.from_json((folder / PLAN_FILE).read_text())
        programmer = _build(plan)
        answers.send({"ready": os.uname().release})
    except Exception as fault:
        answers.send({"error": f"{type(fault).__name__}: {fault}"})
        return

    handlers: dict[str, Callable[[str], object]] = {
        **_course_handlers(programmer),
        "counters": lambda _: {"counters": _counters(programmer)},
        "offloads": lambda _: programmer.read_offloads(),
        "qdiscs": lambda _: programmer.read_qdiscs(),
        "settle": _done(programmer.settle),
    }
    serve(console, handlers, answers.send)


def _done(act: Callable[[int], None]) -> Callable[[str], dict[str, Any]]:
    """Return what handles a request to act on a number of nanoseconds."""

    def handle(argument: str) -> dict[str, Any]:
        act(int(argument))
        return {}

    return handle


def _course_handlers(programmer: GatewayProgrammer) -> dict[str, Callable[[str], object]]:
    """Return what handles requests about ports that change. Times are those of this kernel's monotonic clock."""

    @cache
    def courses() -> KernelCourses:
        return KernelCourses(programmer.changing())

    def end(_: str) -> dict[str, Any]:
        record = courses().end()
        return {"changes": record.changes, "real_time_priority": record.real_time_priority}

    return {
        "clock": lambda _: {"now_ns": time.monotonic_ns()},
        "hold": _done(lambda time_ns: courses().hold(time_ns)),
        "begin": _done(lambda begin_ns: courses().begin_at(begin_ns)),
        "end": end,
    }


def serve(console: int, handlers: Mapping[str, Callable[[str], object]], send: Callable[[object], None]) -> None:
    """Answer request lines until ``stop`` or until the console closes. The answer to a failed request is its error.

    The answer to an empty line is an empty line: the host sends empty lines to wake a console that is stuck.
    """
    pending = b""
    while data := _read(console):
        pending += data
        *lines, pending = pending.split(b"\n")
        for line in lines:
            if line == b"stop":
                return
            if not line:
                os.write(console, b"\n")
                continue
            try:
                verb, _, argument = line.decode().partition(" ")
                send(handlers[verb](argument))
            except Exception as fault:
                send({"error": f"{type(fault).__name__}: {fault}"})


def _read(console: int) -> bytes:
    try:
        return os.read(console, 65536)
    except OSError as fault:
        # A terminal reports EIO once its other end is closed.
        if fault.errno == errno.EIO:
            return b""
        raise


class Answers:
    """Send answers to the host, one line each; longer answers go through files in the shared folder."""

    def __init__(self, console: int, folder: Path) -> None:
        self._console = console
        self._folder = folder
        self._files = 0

    def send(self, answer: object) -> None:
        """Send one answer. Raise TypeError, and send nothing, if JSON cannot represent it."""
        text = json.dumps(answer, separators=(",", ":"))
        if len(text) > LONGEST_LINE_BYTES:
            text = json.dumps({"file": self._filed(text)})
        os.write(self._console, text.encode() + b"\n")

    def _filed(self, text: str) -> str:
        """Write the answer to a new file in the shared folder and return its name. Raise OSError if attempts fail."""
        for attempts_left in reversed(range(_FILE_ATTEMPTS)):
            self._files += 1
            name = f"answer-{self._files}.json"
            try:
                (self._folder / name).write_text(text)
            except OSError:
                if not attempts_left:
                    raise
            else:
                return name
        raise AssertionError("the last attempt returns or raises")


def _build(plan: GatewayPlan) -> GatewayProgrammer:
    namespaces = {}
    own = open_netlink("/proc/self/ns/net")
    vector = 0
    for gateway in plan.gateways:
        descriptor = anonymous_namespace()
        namespaces[gateway.datacenter] = f"/proc/self/fd/{descriptor}"
        for port in gateway.host_ports:
            index = own.link_lookup(ifname=f"vec{vector}")[0]
            own.link("set", index=index, ifname=host_interface(port.host_index), net_ns_fd=descriptor)
            vector += 1
    own.close()
    programmer = GatewayProgrammer(plan, namespaces)
    programmer.program()
    return programmer


def _counters(programmer: GatewayProgrammer) -> list[dict[str, Any]]:
    return [
        {
            "source": port.source,
            "destination": port.destination,
            "total": port.total,
            "pairs": [[*pair, *counters] for pair, counters in port.pairs.items()],
        }
        for port in programmer.read_counters()
    ]


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    finally:
        os.sync()
        ctypes.CDLL(None).reboot(_POWER_OFF)
