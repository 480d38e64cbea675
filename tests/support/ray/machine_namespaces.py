"""Machines of a rack, played by namespaces: each with a card, a name, processes, /run and shared memory of its own.

They are on one network with this process, over a switch that is a namespace too. Everything ends with this process.
"""

import ipaddress
import os
import random
import shlex
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.until import until_within
from wanbed.testbed.kernel.tcp import allow_congestion_control
from wanbed.testbed.network.tcp_settings import TcpSettings

CARD = "eth0"
"""A machine's card."""

_PATIENCE_S = 20

_SUBNETS = ipaddress.IPv4Network("100.64.0.0/10")

_SHELL = """
set -e
mount --make-rprivate /
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
echo {boot} > /run/boot_id
mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
hostname {name}
read plugged
ip link set lo up
ip address add {address}/24 dev {card}
ip link set {card} up
{program} &
wait $!
"""
"""What a machine does first; it begins its program once its card is plugged in."""


@dataclass(frozen=True)
class NamespaceMachine:
    """A machine: its name, its address on the rack's network, and its first process."""

    name: str
    address: str
    first: "subprocess.Popen[bytes]" = field(repr=False)

    @property
    def pid(self) -> int:
        """Number of the machine's first process, as this process sees it."""
        children = Path(f"/proc/{self.first.pid}/task/{self.first.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def inside(self, *argv: str) -> list[str]:
        """Return the command line that runs a program on the machine."""
        entered = ["--net", "--mount", "--uts", "--ipc", "--pid", f"--wdns={os.getcwd()}"]
        return ["nsenter", f"--target={self.pid}", *entered, "--", *argv]

    def power_off(self) -> None:
        """Kill everything on the machine at once."""
        self.first.kill()
        self.first.wait()


LINK = "wbr"
"""What the name of a switch's link begins with, in the network of this process."""


class Switch:
    """A network between machines and this process, whose address on it is ``address``."""

    def __init__(self, subnet: ipaddress.IPv4Network, holder: "subprocess.Popen[bytes]", stack: ExitStack) -> None:
        self._addresses = iter(subnet.hosts())
        self._holder, self._stack = holder, stack
        self._tag = f"{subnet.network_address.packed[1]:02x}{subnet.network_address.packed[2]:02x}"
        self._ports = 0
        self.address = self._next_address()
        link = f"{LINK}{self._tag}"
        self._plug(link, None)
        _ip("address", "add", f"{self.address}/24", "dev", link)
        _ip("link", "set", link, "up")

    def machine(
        self, name: str, program: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> NamespaceMachine:
        """Start a machine that runs the program; ``{address}`` in it stands for the machine's address."""
        address = self._next_address()
        shown = shlex.join(program).replace("{address}", address)
        script = _SHELL.format(boot=uuid.uuid4(), name=name, address=address, card=CARD, program=shown)
        namespaces = ["--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with log.open("wb") as output:
            first = subprocess.Popen(
                [*_dying_with_us(), "unshare", *namespaces, "sh", "-c", script],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
            )
        machine = NamespaceMachine(name, address, first)
        self._stack.callback(machine.power_off)
        until_within(_PATIENCE_S, lambda: _other_network(machine.pid))
        self._plug(CARD, machine.pid)
        assert first.stdin is not None
        first.stdin.write(b"plugged\n")
        first.stdin.flush()
        return machine

    def _next_address(self) -> str:
        return str(next(self._addresses))

    def _plug(self, name: str, pid: int | None) -> None:
        """Join the switch by a link whose far end gets this name, in the namespace of ``pid`` or in this one."""
        port = f"port{self._ports}"
        self._ports += 1
        far = ["netns", str(os.getpid() if pid is None else pid)]
        in_switch = ["nsenter", f"--target={self._holder.pid}", "--net"]
        _run([*in_switch, "ip", "link", "add", port, "type", "veth", "peer", "name", name, *far])
        _run([*in_switch, "ip", "link", "set", port, "master", "switch", "up"])


@contextmanager
def switch() -> Iterator[Switch]:
    """Yield a network that no other process of this machine uses, until the end of the block."""
    # Only the initial namespace may; a machine that is played by another one cannot do it for itself.
    allow_congestion_control(TcpSettings().congestion)
    with ExitStack() as stack:
        taken = subprocess.run(["ip", "-4", "-br", "address"], check=True, capture_output=True, text=True).stdout
        free = [net for net in _SUBNETS.subnets(new_prefix=24) if f" {str(net.network_address)[:-1]}" not in taken]
        subnet = random.SystemRandom().choice(free)
        made = "ip link add switch type bridge && ip link set switch up && echo ready && exec sleep infinity"
        holder = subprocess.Popen(
            [*_dying_with_us(), "unshare", "--net", "sh", "-c", made], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        stack.callback(holder.wait)
        stack.callback(holder.kill)
        assert holder.stdout is not None
        with holder.stdout as said:
            assert said.readline() == b"ready\n", "the switch did not start"
        yield Switch(subnet, holder, stack)


def _dying_with_us() -> list[str]:
    return ["setpriv", "--pdeathsig", "KILL"]


def _other_network(pid: int) -> bool:
    try:
        return pid != 0 and os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
    except FileNotFoundError:
        return False


def _ip(*words: str) -> None:
    _run(["ip", *words])


def _run(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(argv)}: {done.stderr}")


def links_outside() -> set[str]:
    """Return the machine's own links, without those of clusters that other tests have meanwhile."""
    return {name for name in os.listdir("/sys/class/net") if not name.startswith(LINK)}
