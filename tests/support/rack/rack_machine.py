"""Machines that a driver can lease: each has a process that serves it, whatever plays the machine."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.rack.guests.guest_machine import GuestMachine
from tests.support.rack.guests.guest_wire import GuestWire
from tests.support.rack.machine_process import ProcessHandle
from tests.support.rack.machines import LocalCommand, NamespaceMachine, PlayedMachine
from tests.support.until import until_within
from wanbed.testbed.kernel.tcp import allow_congestion_control
from wanbed.testbed.network.tcp_settings import TcpSettings

_START_S = 90.0
_GUEST_CLAIMS = Path("/run/wanbed")


class RackMachine:
    """A machine whose process runs; ``claims`` is the folder of its claims.

    ``clock_ahead_s`` is how far its CLOCK_MONOTONIC is ahead of this machine's, of a namespace's machine.
    """

    def __init__(
        self,
        machine: PlayedMachine,
        wire: GuestWire,
        claims: Path,
        lease_s: float,
        *options: str,
        clock_ahead_s: int = 0,
    ) -> None:
        self.name = machine.name
        self.claims = claims
        self.handle = ProcessHandle(machine.name, machine.address, wire.namespace)
        self.place = [machine.name, machine.address, wire.namespace]
        """The arguments of its handle, for another process."""
        argv = ["-m", "tests.support.rack.machine_process", machine.address, str(claims), str(lease_s), *options]
        shifted = ["unshare", "--time", f"--monotonic={clock_ahead_s}", "--fork", "--kill-child", "--"]
        self.process = machine.start([*(shifted if clock_ahead_s else []), sys.executable, *argv])

    def await_start(self) -> None:
        until_within(_START_S, lambda: "listening" in self.process.output())

    def pull_the_plug(self) -> None:
        """Kill the machine's process, not what it has started. Only of a namespace's machine."""
        assert isinstance(self.process, LocalCommand)
        self.process.kill()


@contextmanager
def namespace_machines(
    count: int, folder: Path, *, lease_s: float = 20.0, trunks: bool = False, clocks_ahead_s: Sequence[int] = ()
) -> Iterator[list[RackMachine]]:
    """Yield machines on namespaces of this kernel. ``folder`` receives their claims.

    With ``trunks`` they shape trunks without netem, which this kernel may lack. Their clocks are this machine's unless
    ``clocks_ahead_s`` has one for each.
    """
    options = ["trunks"] if trunks else []
    ahead_s = clocks_ahead_s or [0] * count
    # Only the initial namespace may; a machine that is played by another one cannot do it for itself.
    allow_congestion_control(TcpSettings().congestion)
    with ExitStack() as up:
        wire = up.enter_context(GuestWire())
        played = [up.enter_context(NamespaceMachine(wire, number)) for number in range(count)]
        machines = [
            RackMachine(each, wire, folder / each.name, lease_s, *options, clock_ahead_s=ahead)
            for each, ahead in zip(played, ahead_s, strict=True)
        ]
        yield _served(up, machines)


@contextmanager
def guest_machines(count: int, *, shared: Sequence[Path] = (), memory_mib: int = 1024) -> Iterator[list[RackMachine]]:
    """Yield machines with kernels of their own, which have netem. Folders in ``shared`` are this machine's too."""
    with ExitStack() as up:
        wire = up.enter_context(GuestWire())
        guests = [GuestMachine(wire, number, memory_mib=memory_mib, shared=shared) for number in range(count)]
        played = [up.enter_context(each) for each in guests]
        yield _served(up, [RackMachine(each, wire, _GUEST_CLAIMS, 20.0) for each in played])


def _served(up: ExitStack, machines: list[RackMachine]) -> list[RackMachine]:
    for machine in machines:
        up.callback(machine.process.kill)
    for machine in machines:
        machine.await_start()
    return machines
