"""Use Mininet's hosts: nodes, prompt and name look-up are Mininet's; links are not.

Mininet's own links shell out to ``tc`` and drop rates above 1 Gbit/s, and its constructor changes system-wide sysctls
unless a flag claims that it has already. So nodes are made without it, and interfaces are registered with it later.
"""

import os
import resource
import shlex
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Unpack

from mininet.link import Intf
from mininet.net import Mininet
from mininet.node import Node

from testbed.claims.registry import MARKER
from testbed.hosts.host import SpawnOptions
from testbed.hosts.host_process import HostProcess, Program
from testbed.hosts.joining import enter_host, entering
from testbed.network.host_interface import HOST_INTERFACE
from wanbed.own_modules import module_command

_DESCRIPTORS = 16_384
"""How many this process may have open, if it may: a host takes about three, and 1024 is what most shells leave."""


class EmulatedHost(Node):  # type: ignore[misc]
    """A Mininet node with a host name of its own; its processes bear the testbed's identifier, ``marker``."""

    def __init__(self, name: str, marker: str, **params: Any) -> None:
        self._marker = marker
        super().__init__(name, **params)

    def _popen(self, cmd: list[str], **params: Any) -> Any:
        set_name = f'echo {shlex.quote(self.name)} > /proc/sys/kernel/hostname; exec "$@"'
        environment = {**os.environ, **params.pop("env", {}), MARKER: self._marker}
        return super()._popen(["unshare", "--uts", "sh", "-c", set_name, "sh", *cmd], env=environment, **params)

    @property
    def namespace(self) -> str:
        """Path of the node's network namespace."""
        return f"/proc/{self.pid}/ns/net"

    @property
    def shell_pid(self) -> int | None:
        """Number of the node's shell."""
        return int(self.pid)

    def configure(self, hosts_file: Path, address: str, environment: Mapping[str, str]) -> None:
        """Make ``hosts_file`` this host's /etc/hosts, and prepare Mininet's prompt.

        There the address stands for the host's name, and what is started has ``environment``.
        """
        self.cmd("mount", "--bind", shlex.quote(str(hosts_file)), "/etc/hosts")
        # The interface is made without Mininet.
        known = Intf(HOST_INTERFACE, node=self, moveIntfFn=lambda *_: None, up=None)
        known.ip, known.prefixLen = address, 32
        for name, value in environment.items():
            self.cmd("export", f"{name}={shlex.quote(value)}")

    def spawn(self, argv: list[str], **popen: Unpack[SpawnOptions]) -> subprocess.Popen[Any]:
        """Start any program on this host: in its network, mount and UTS namespaces, in a session of its own."""
        return enter_host(self.pid, self._marker, argv, **popen)

    def start_module(
        self, module: str, arguments: list[str], words: int, environment: Mapping[str, str]
    ) -> HostProcess:
        """Run ``main(arguments)`` of a Python module on this host, in a Python of its own."""
        program = module_command(module, *arguments)
        argv, whole = entering(self.pid, self._marker, program, {**os.environ, **environment})
        return Program(argv, env=whole, stdin=subprocess.DEVNULL, stdout=words, stderr=words)

    def stop_shell(self) -> None:
        """End the node's shell, and with it the namespace once no other process holds it."""
        if self.shell is None:
            return
        with suppress(ProcessLookupError):
            os.kill(self.shell.pid, signal.SIGKILL)
        self.shell.wait()
        self.cleanup()


def _allow_descriptors(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, hard)), hard))


class EmulatedNetwork(Mininet):  # type: ignore[misc]
    """Show the testbed to Mininet, for its prompt; make no links and no system-wide settings."""

    def __init__(self) -> None:
        # Mininet asks its own class, not this one, whether the machine's sysctls are still to be changed.
        Mininet.inited = True
        _allow_descriptors(_DESCRIPTORS)
        super().__init__(topo=None, controller=None, build=False)
        self.built = True

    @property
    def module_parent(self) -> int:
        """Number of the process that starts the hosts' programs: this one."""
        return os.getpid()

    def add(self, name: str, marker: str) -> EmulatedHost:
        """Start a node."""
        host = EmulatedHost(name, marker)
        self.hosts.append(host)
        self.nameToNode[name] = host
        return host

    def stop(self) -> None:
        """End every node."""
        for host in self.hosts:
            host.stop_shell()
        self.hosts.clear()
        self.nameToNode.clear()
