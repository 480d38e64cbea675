"""Run gateways inside a User-Mode Linux guest: a Linux kernel that runs as a process, between the hosts.

Hosts stay on the host's kernel. The guest opens one TAP device for each of them; once the guest's gateways stand, the
device becomes the host's network card. The guest runs in a PID and a network namespace of its own, so that ending its
first process ends all of it, and its TAP devices, which only the guest holds open, go with it.
"""

import json
import os
import selectors
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.claims.registry import MARKER
from testbed.kernel.gateway_programming import link_index
from testbed.kernel.link_counters import Counters, PortCounters
from testbed.kernel.machine_load import process_tree_cpu_s
from testbed.kernel.namespace import open_netlink
from testbed.network.gateway_plan import GatewayPlan
from testbed.network.host_interface import HOST_INTERFACE
from testbed.substrate.guest_agent import PLAN_FILE
from testbed.substrate.substrate import SubstrateError, SubstrateFacts
from wanbed.own_modules import module_command

GUEST_PROGRAM = "linux.uml"
MODULES_ROOT = Path("/usr/lib/uml/modules")
MODULES = ("drivers/net/veth.ko", "net/sched/sch_netem.ko", "net/sched/sch_htb.ko", "net/sched/cls_bpf.ko")

MAX_GUEST_HOSTS = 64
"""The guest's kernel command line, which names every TAP device, ends at 4096 characters."""

_MEMORY = "768M"
_VECTOR_DEPTH = 256
_NICE = -20
"""The network shall not slow down because hosts compute."""
_BOOT_DEADLINE_S = 60.0
_NUDGE_S = 0.5
"""A busy guest kernel was seen to miss that its console can be read or written, until something else comes that way."""
_ANSWER_DEADLINE_S = 20.0


class GuestKernel:
    """One guest; ``folder`` is the testbed's own and is shared with the guest."""

    def __init__(self, plan: GatewayPlan, folder: Path, marker: str) -> None:
        self._plan = plan
        self._folder = folder
        self._marker = marker
        self._guest: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._asking = threading.Lock()

    def start(self, host_namespaces: Mapping[str, str]) -> SubstrateFacts:
        """Boot the guest, wait until its gateways stand, and hand every host its TAP device."""
        ports = [port for gateway in self._plan.gateways for port in gateway.host_ports]
        (self._folder / PLAN_FILE).write_text(self._plan.to_json())
        self._boot(len(ports))
        answer = self._answer(_BOOT_DEADLINE_S)
        assert self._guest is not None
        own = open_netlink(f"/proc/{self._guest.pid}/ns/net")
        try:
            for number, port in enumerate(ports):
                self._hand_over(own, f"tap{number}", host_namespaces[port.host])
        finally:
            own.close()
        return SubstrateFacts("guest", answer["ready"])

    def read_counters(self) -> list[PortCounters]:
        """Return the counters of every WAN port, as of now."""
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
        """Return the CPU seconds that the guest has used; its kernel has one core."""
        return None if self._guest is None else process_tree_cpu_s(self._guest.pid)

    def settle(self, trim_ns: int) -> None:
        """Complete the WAN links with their impairments, and their delays ``trim_ns`` less than asked."""
        self._ask(f"settle {trim_ns}")

    def read_qdiscs(self) -> dict[str, Any]:
        """Return what the guest's kernel holds on every port now."""
        return self._ask("qdiscs")

    def read_offloads(self) -> dict[str, Any]:
        """Return sizes and offloads of every port now, as the guest's kernel reports them."""
        return self._ask("offloads")

    def _ask(self, request: str) -> dict[str, Any]:
        with self._asking:
            self._request(request)
            return self._answer(_ANSWER_DEADLINE_S)

    def _counters(self, values: list[int]) -> Counters:
        counters = Counters(*values)
        # The kernel does not count the packets in a super-packet that came from a TAP device.
        return counters if self._plan.exact_packets else counters._replace(packets=None)

    def stop(self) -> None:
        """End the guest at once: it holds nothing that needs writing."""
        if self._guest is None:
            return
        self._guest.kill()
        self._guest.wait()
        for stream in (self._guest.stdin, self._guest.stdout):
            assert stream is not None
            # Closing writes what a guest that has ended did not take.
            with suppress(BrokenPipeError):
                stream.close()
        self._guest = None

    def _boot(self, hosts: int) -> None:
        program = shutil.which(GUEST_PROGRAM)
        if program is None:
            raise SubstrateError(f"{GUEST_PROGRAM} is not installed: apt-get install user-mode-linux")
        script = self._folder / "init"
        script.write_text(self._init_script())
        script.chmod(0o755)
        offload = "" if self._plan.exact_packets else ",gro=1"
        cards = [f"vec{n}:transport=tap,ifname=tap{n},depth={_VECTOR_DEPTH}{offload}" for n in range(hosts)]
        kernel = [program, "rootfstype=hostfs", "rootflags=/", "rw", f"mem={_MEMORY}", f"init={script}", "quiet"]
        consoles = ["con=null", "con0=null,fd:2", "con1=fd:0,fd:1", f"uml_dir={self._folder}", "umid=guest"]
        # A first process that is not the kernel itself: as process 1 of its namespace the kernel would miss signals.
        first = ["sh", "-c", '"$@"; true', "guest", *kernel, *consoles, *cards]
        with (self._folder / "guest.log").open("wb") as log:
            self._guest = subprocess.Popen(
                ["nice", f"--adjustment={_NICE}", "unshare", "--net", "--pid", "--fork", "--kill-child", *first],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, MARKER: self._marker, "TMPDIR": "/dev/shm"},  # noqa: S108 - memory, not a file
                start_new_session=True,
            )

    def _init_script(self) -> str:
        agent = module_command("testbed.substrate.guest_agent", str(self._folder))
        return "\n".join(
            [
                "#!/bin/sh",
                "export PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONDONTWRITEBYTECODE=1",
                "mount -t proc proc /proc",
                "mount -t sysfs sysfs /sys",
                f"modules={MODULES_ROOT}/$(uname -r)/kernel",
                f"for module in {' '.join(MODULES)}; do",
                '  [ -e "$modules/$module" ] && insmod "$modules/$module"',
                "done",
                f"exec {shlex.join(agent)}",
                "",
            ]
        )

    def _hand_over(self, own: Any, tap: str, host_namespace: str) -> None:
        index = link_index(own, tap)
        with open(host_namespace, "rb") as namespace:
            own.link("set", index=index, ifname=HOST_INTERFACE, net_ns_fd=namespace.fileno())

    def _request(self, request: str) -> None:
        assert self._guest is not None
        assert self._guest.stdin is not None
        try:
            self._guest.stdin.write(request.encode() + b"\n")
            self._guest.stdin.flush()
        except BrokenPipeError:
            raise SubstrateError(self._exit_text("ended")) from None

    def _answer(self, patience_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + patience_s
        while not (line := self._next_line(deadline, patience_s)).startswith(b"{"):
            # The kernel itself may have something to say on any console.
            with (self._folder / "guest.log").open("ab") as log:
                log.write(line + b"\n")
        answer = json.loads(line)
        if "file" in answer:
            path = self._folder / answer["file"]
            answer = json.loads(path.read_text())
            path.unlink()
        if "error" in answer:
            raise SubstrateError(f"the guest kernel: {answer['error']}")
        return dict(answer)

    def _next_line(self, deadline: float, patience_s: float) -> bytes:
        """Return the next line on the guest's console that is not empty."""
        assert self._guest is not None
        assert self._guest.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self._guest.stdout, selectors.EVENT_READ)
            # Empty lines answer nudges, also those of an answer before.
            while b"\n" not in (pending := self._pending.lstrip(b"\n")):
                left_s = deadline - time.monotonic()
                if ready.select(max(0.0, min(left_s, _NUDGE_S))):
                    data = os.read(self._guest.stdout.fileno(), 65536)
                    if not data:
                        raise SubstrateError(self._exit_text("ended"))
                    self._pending = pending + data
                elif left_s > 0:
                    self._request("")
                else:
                    raise SubstrateError(self._exit_text(f"did not answer within {patience_s:.0f} s"))
        line, _, self._pending = pending.partition(b"\n")
        return line

    def _exit_text(self, what: str) -> str:
        log = (self._folder / "guest.log").read_text(errors="replace").strip().splitlines()
        return f"the guest kernel {what}; its last words: {log[-1] if log else 'none'}"
