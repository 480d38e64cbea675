"""What tests need of a machine of a rack, whatever plays it, and a network namespace that plays one.

A namespace has the machine's own kernel, and a card of its own on a ``GuestWire``.
"""

import os
import subprocess
import threading
from collections.abc import Sequence
from typing import Protocol, Self

from tests.support.rack.guests.guest_machine import CARD, ROOT
from tests.support.rack.guests.guest_wire import BRIDGE, PREFIX, GuestWire
from tests.support.rack.held_namespace import HeldNamespace
from wanbed.testbed.kernel.gateway_programming import link_index
from wanbed.testbed.kernel.namespace import write_sysctls

_FIRST_OCTET = 100


class Command(Protocol):
    """A program that runs on a machine."""

    def send(self, line: str) -> None: ...

    def output(self) -> str: ...

    def wait(self, timeout_s: float) -> int: ...

    def kill(self) -> None: ...


class PlayedMachine(Protocol):
    """A machine with a card on a wire."""

    name: str
    address: str

    def start(self, argv: Sequence[str], *, has_input: bool = False) -> Command: ...


class NamespaceMachine(HeldNamespace):
    """A machine that is a network namespace of this kernel, for the duration of a ``with`` block."""

    def __init__(self, wire: GuestWire, number: int) -> None:
        self.name = f"space{number}"
        self.address = f"{PREFIX}.{_FIRST_OCTET + number}"
        self.wire = wire
        self._number = number

    def __enter__(self) -> Self:
        super().__enter__()
        # It gives itself addresses and routes at times of its own, which are no test's doing.
        write_sysctls(
            self.namespace, {"net.ipv6.conf.default.disable_ipv6": "1", "net.ipv6.conf.all.disable_ipv6": "1"}
        )
        wire = self.wire.open_netlink()
        own = self.open_netlink()
        try:
            with open(self.namespace, "rb") as namespace:
                peer = {"ifname": CARD, "net_ns_fd": namespace.fileno()}
                port = f"port{self._number}"
                wire.link("add", ifname=port, kind="veth", peer=peer)
            wire.link("set", index=link_index(wire, port), master=link_index(wire, BRIDGE), state="up")
            index = link_index(own, CARD)
            own.link("set", index=link_index(own, "lo"), state="up")
            own.link("set", index=index, state="up")
            own.addr("add", index=index, address=self.address, prefixlen=24)
        finally:
            wire.close()
            own.close()
        return self

    def start(self, argv: Sequence[str], *, has_input: bool = False) -> "LocalCommand":
        """Start a program in the namespace."""
        return LocalCommand(["nsenter", f"--net={self.namespace}", "--", *argv], has_input=has_input)


class LocalCommand:
    """A program on this machine's kernel that collects its output."""

    def __init__(self, argv: Sequence[str], *, has_input: bool) -> None:
        self._parts: list[str] = []
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._parts.append(line)

    def send(self, line: str) -> None:
        """Send a line to a program that has input."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def output(self) -> str:
        """Return what the program has printed so far."""
        return "".join(self._parts)

    def wait(self, timeout_s: float) -> int:
        """Wait for the program's end and return its exit status."""
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"it still runs after {timeout_s:.0f} s: {self.output()[-2000:]}") from None
        self._reading.join(5.0)
        return status

    def kill(self) -> None:
        """Kill the program if it still runs."""
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
