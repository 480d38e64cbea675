"""Run gateways in the gateway guest: a User-Mode Linux kernel, which runs as a process, between the hosts.

Hosts stay on the machine's kernel. The guest opens one TAP device for each host, or one end of a veth pair where TAP
devices are refused. Once the guest's gateways are up, the device (the pair's other end) becomes the host's network
interface. The guest has its own PID and network namespace: killing its first process ends the whole guest, and with it
the devices, which only the guest holds.

A TAP device queues a thousand packets; a raw socket drops what its buffer cannot hold while the guest is not running.
The default buffer of 208 KiB holds three super-packets, so it is enlarged.

Links change on time although an order for every change would wait behind other requests, and in the host's scheduler:
the guest has the courses of its ports, and follows its own clock. That is the machine's monotonic clock since the
guest's start: a User-Mode Linux kernel reads the time from its host, so the two run at the same rate, and differ by a
constant. Exchanges measure it, before and after the courses run; half the shortest round trip bounds its error.
"""

import ctypes
import json
import os
import shlex
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from wanbed.module_process import module_command
from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.kernel.course_run import AppliedChange, CourseRecord
from wanbed.testbed.kernel.gateway_programming import link_index
from wanbed.testbed.kernel.link_counters import Counters, PortCounters
from wanbed.testbed.kernel.namespace import open_netlink, opened
from wanbed.testbed.kernel.open_files import allow_open_files
from wanbed.testbed.kernel.processors import process_tree, process_tree_cpu_s
from wanbed.testbed.kernel.user_mode_linux import GuestMemoryError, fitted_kernel, memory_for_guest
from wanbed.testbed.network.addressing import HOST_INTERFACE
from wanbed.testbed.network.gateway_plan import GatewayPlan
from wanbed.testbed.substrate.asked_process import AskedProcess
from wanbed.testbed.substrate.guest_agent import PLAN_FILE
from wanbed.testbed.substrate.guest_device import GuestDevice, guest_device, guest_end, host_end
from wanbed.testbed.substrate.substrate import GuestFacts, SubstrateError, SubstrateFacts

WANTED_BYTES = 2**23
"""Enough for 60 ms at 1 Gbit/s."""

_PIDFD_GETFD = 438
_SO_RCVBUFFORCE = 33
_libc = ctypes.CDLL(None, use_errno=True)


def enlarge_buffers(pids: Iterable[int]) -> int | None:
    """Enlarge the buffers of all packet sockets of these processes, and return the size of the smallest.

    Without root a size is limited by ``net.core.rmem_max``. None if there is no such socket, or none may be touched.
    """
    sizes = []
    for pid in pids:
        for descriptor in _packet_sockets(pid):
            with socket.socket(fileno=descriptor) as raw:
                sizes.append(_enlarged(raw))
    return min(sizes, default=None)


def _enlarged(raw: socket.socket) -> int:
    try:
        # The kernel doubles the requested size.
        raw.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, WANTED_BYTES // 2)
    except PermissionError:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WANTED_BYTES // 2)
    return raw.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def _packet_sockets(pid: int) -> list[int]:
    """Return duplicates of a process's packet sockets."""
    duplicates = []
    with suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            for entry in os.scandir(f"/proc/{pid}/fd"):
                if not os.readlink(entry.path).startswith("socket:"):
                    continue
                duplicate = _libc.syscall(_PIDFD_GETFD, process, int(entry.name), 0)
                if duplicate < 0:
                    continue
                with socket.socket(fileno=os.dup(duplicate)) as probe:
                    is_packet = probe.family == socket.AF_PACKET
                if is_packet:
                    duplicates.append(duplicate)
                else:
                    os.close(duplicate)
        finally:
            os.close(process)
    return duplicates


_EXCHANGES = 20
_MARGIN_NS = 50_000_000
"""The time before their begin at which the guest is told; it is doubled for a guest that takes longer to answer."""


class _Offset(NamedTuple):
    """The lead of the guest's clock over this process's, and a bound of the error."""

    ahead_ns: int
    error_ns: int


class GuestCourses:
    """The courses of a guest's ports. ``ask`` sends the guest a request and returns its answer."""

    def __init__(self, ask: Callable[[str], dict[str, Any]]) -> None:
        self._ask = ask
        self._begin_ns = 0
        self._offset = _Offset(0, 0)

    def hold(self, time_ns: int) -> None:
        """Put every port in its state at a time since training began, and read it back."""
        self._ask(f"hold {time_ns}")

    def begin(self) -> int:
        """Let every course begin, and return when: a moment ago, on this process's monotonic clock."""
        self._offset = self._measured_offset()
        margin_ns = _MARGIN_NS
        while True:
            self._begin_ns = time.monotonic_ns() + margin_ns
            self._ask(f"begin {self._begin_ns + self._offset.ahead_ns}")
            if (left_ns := self._begin_ns - time.monotonic_ns()) > 0:
                time.sleep(left_ns / 1e9)
                return self._begin_ns
            margin_ns *= 2

    def end(self) -> CourseRecord:
        """End the courses, put every port in its first state, read it back, and return what was changed."""
        answer = self._ask("end")
        changes = tuple(AppliedChange(*each) for each in answer["changes"])
        after = self._measured_offset()
        apart_ns = abs(after.ahead_ns - self._offset.ahead_ns)
        error_ns = max(self._offset.error_ns, after.error_ns) + apart_ns
        return CourseRecord(self._begin_ns, changes, answer["real_time_priority"], error_ns)

    def _measured_offset(self) -> _Offset:
        found = []
        for _ in range(_EXCHANGES):
            asked_ns = time.monotonic_ns()
            guest_ns = self._ask("clock")["now_ns"]
            answered_ns = time.monotonic_ns()
            found.append(_Offset(guest_ns - (asked_ns + answered_ns) // 2, (answered_ns - asked_ns) // 2))
        return min(found, key=lambda offset: offset.error_ns)


GUEST_PROGRAM = "linux.uml"
_NAME = "the gateway guest"
MODULES_ROOT = Path("/usr/lib/uml/modules")
MODULES = ("drivers/net/veth.ko", "net/sched/sch_netem.ko", "net/sched/sch_htb.ko", "net/sched/cls_bpf.ko")

MAX_GUEST_HOSTS = 64
"""The guest's kernel command line lists every device and is limited to 4096 characters."""

_MIB = 2**20
_WANTED_MEMORY_BYTES, _LEAST_MEMORY_BYTES = 768 * _MIB, 192 * _MIB
"""Half of the least is touched by 64 hosts' gateways; packets that wait on long and fast links take more."""
_OPEN_FILES, _OPEN_FILES_A_HOST, _WANTED_OPEN_FILES = 64, 2, 1024
"""With fewer open files a guest's agent ends, and with it the guest: 62 are enough for 2 hosts, 72 for 8."""
_VECTOR_DEPTH = 256
_NICE = -20
"""Priority of the guest, so that computation on hosts does not slow down the network; ``nice`` goes on if refused."""
MOUNT = "mount"
"""The guest's own copy of the program, in the testbed's folder."""
_PYTHON_PATHS = ("PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables without which Python may not find what this process has found."""
_BOOT_DEADLINE_S = 60.0
_NUDGE_S = 0.5
"""Interval of empty request lines. A busy guest may miss that its console is ready until more input arrives."""
_ANSWER_DEADLINE_S = 20.0


@contextmanager
def guest_gateways(
    plan: GatewayPlan, folder: Path, marker: str, host_namespaces: Mapping[str, str]
) -> Iterator["GuestKernel"]:
    """Boot the guest, wait until its gateways are up, and move each host's device to the host's namespace.

    ``folder`` is the testbed's folder and is shared with the guest. After the block the guest is killed: it has no data
    to write. Raise SubstrateError or MissingError if it does not come up.
    """
    ports = [port for gateway in plan.gateways for port in gateway.host_ports]
    device = guest_device()
    with closing(_booted(plan, folder, marker, device, len(ports))) as process:
        guest = GuestKernel(plan, folder, process, device)
        with closing(open_netlink(f"/proc/{process.pid}/ns/net")) as own:
            for number, port in enumerate(ports):
                index = link_index(own, host_end(number))
                with opened(host_namespaces[port.host]) as namespace:
                    own.link("set", index=index, ifname=HOST_INTERFACE, net_ns_fd=namespace)
        yield guest


class GuestKernel:
    """The gateways of one testbed in their guest, which ``process`` is."""

    def __init__(self, plan: GatewayPlan, folder: Path, process: AskedProcess, device: GuestDevice) -> None:
        self._plan = plan
        self._folder = folder
        self._process = process
        self._courses = GuestCourses(self._ask)
        kernel = self._read(process.answer(_BOOT_DEADLINE_S))["ready"]
        self.facts = SubstrateFacts("guest", kernel, guest=_guest_facts(process.pid, device))

    def read_counters(self) -> list[PortCounters]:
        """Read the counters of every WAN port."""
        answer = self._ask("counters")
        return [
            PortCounters(
                port["source"],
                port["destination"],
                self._counters(port["total"]),
                {(source, destination): self._counters(values) for source, destination, *values in port["pairs"]},
            )
            for port in answer["counters"]
        ]

    def cpu_time_s(self) -> float | None:
        """Return the CPU seconds that the guest has used; it runs on one core."""
        return process_tree_cpu_s(self._process.pid)

    def settle(self, trim_ns: int) -> None:
        """Set the WAN links' configured impairments, and delays ``trim_ns`` below the configured ones."""
        self._ask(f"settle {trim_ns}")

    def changing(self) -> GuestCourses:
        """Return what changes ports whose links have a course, once they are settled."""
        return self._courses

    def read_qdiscs(self) -> dict[str, Any]:
        """Read every port's qdiscs from the guest's kernel."""
        return self._ask("qdiscs")

    def read_offloads(self) -> dict[str, Any]:
        """Read sizes and offloads of every port from the guest's kernel."""
        return self._ask("offloads")

    def _ask(self, request: str) -> dict[str, Any]:
        return self._read(self._process.ask(request, _ANSWER_DEADLINE_S))

    def _read(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer, of which a long one is in a file. Raise SubstrateError for an error in the guest."""
        if "file" in answer:
            path = self._folder / answer["file"]
            answer = json.loads(path.read_text())
            path.unlink()
        if "error" in answer:
            raise SubstrateError(f"{_NAME}: {answer['error']}")
        return answer

    def _counters(self, values: list[int]) -> Counters:
        counters = Counters(*values)
        # The kernel does not count the packets inside a super-packet from a TAP device.
        return counters if self._plan.exact_packets else counters._replace(packets=None)


def _booted(plan: GatewayPlan, folder: Path, marker: str, device: GuestDevice, hosts: int) -> AskedProcess:
    """Start a guest that ``hosts`` hosts can be connected to. Its first answer says that it is ready."""
    (folder / PLAN_FILE).write_text(plan.to_json())
    program = shutil.which(GUEST_PROGRAM)
    if program is None:
        raise SubstrateError(f"{GUEST_PROGRAM} is not installed: apt-get install user-mode-linux")
    allow_open_files(_NAME, _WANTED_OPEN_FILES, least=_OPEN_FILES + _OPEN_FILES_A_HOST * hosts)
    memory_folder, memory_bytes = gateway_guest_memory()
    # In a user namespace the installed one would change to its owner, who is nobody there.
    shutil.copyfile(shutil.which("mount") or "mount", folder / MOUNT)
    (folder / MOUNT).chmod(0o755)
    script = folder / "init"
    script.write_text(_init_script(folder))
    script.chmod(0o755)
    offload = "" if plan.exact_packets else ",gro=1"
    # The card's buffers are as large as its MTU, which cannot be raised later.
    cards = [f"{device.card(number)},depth={_VECTOR_DEPTH},mtu={plan.mtu_bytes}{offload}" for number in range(hosts)]
    kernel = [
        str(fitted_kernel(Path(program))),
        "rootfstype=hostfs",
        "rootflags=/",
        "rw",
        f"mem={memory_bytes // _MIB}M",
        f"init={script}",
        "quiet",
    ]
    consoles = ["con=null", "con0=null,fd:2", "con1=fd:0,fd:1", f"uml_dir={folder}", "umid=guest"]
    # A shell is the namespace's process 1: there, the guest's kernel itself would miss signals.
    first = ["sh", "-c", f'{_veth_pairs(device, hosts)}"$@"; true', "guest", *kernel, *consoles, *cards]
    return AskedProcess(
        _NAME,
        ["nice", f"--adjustment={_NICE}", "unshare", "--net", "--pid", "--fork", "--kill-child", *first],
        {**os.environ, MARKER: marker, "TMPDIR": str(memory_folder)},
        folder / "guest.log",
        nudge_s=_NUDGE_S,
    )


def _veth_pairs(device: GuestDevice, hosts: int) -> str:
    """Return the commands of a shell that make the guest's devices; TAP devices are made by being opened."""
    if device.tap_refusal is None:
        return ""
    pairs = [(guest_end(number), host_end(number)) for number in range(hosts)]
    return "".join(f"ip link add {own} up type veth peer name {other} && " for own, other in pairs)


def _init_script(folder: Path) -> str:
    agent = module_command("wanbed.testbed.substrate.guest_agent", str(folder))
    mount = shlex.quote(str(folder / MOUNT))
    exports = [f"export {name}={shlex.quote(text)}" for name, text in _python_environment(os.environ).items()]
    return "\n".join(
        [
            "#!/bin/sh",
            "export PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONDONTWRITEBYTECODE=1",
            *exports,
            f"{mount} -t proc proc /proc",
            f"{mount} -t sysfs sysfs /sys",
            f"modules={MODULES_ROOT}/$(uname -r)/kernel",
            f"for module in {' '.join(MODULES)}; do",
            '  [ -e "$modules/$module" ] && insmod "$modules/$module"',
            "done",
            f"exec {shlex.join(agent)}",
            "",
        ]
    )


def _guest_facts(pid: int, device: GuestDevice) -> GuestFacts:
    raw = device.tap_refusal is not None
    return GuestFacts(
        device=device.name,
        nice=os.getpriority(os.PRIO_PROCESS, pid),
        buffer_bytes=enlarge_buffers(process_tree(pid)) if raw else None,
    )


def gateway_guest_memory() -> tuple[Path, int]:
    """Return the folder for the guest's memory, and its size in bytes. Raise GuestMemoryError if none has enough.

    A folder on disk with all that is wanted is better than one in memory with little more than the least.
    """
    try:
        return memory_for_guest(_NAME, _WANTED_MEMORY_BYTES, _WANTED_MEMORY_BYTES)
    except GuestMemoryError:
        return memory_for_guest(_NAME, _WANTED_MEMORY_BYTES, _LEAST_MEMORY_BYTES)


def _python_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which Python finds modules and libraries, with absolute paths: the guest starts in /."""
    return {
        name: os.pathsep.join(os.path.abspath(path) for path in environment[name].split(os.pathsep) if path)
        for name in _PYTHON_PATHS
        if environment.get(name)
    }
