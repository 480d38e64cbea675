"""Provide hosts that are Mininet nodes, with Mininet's prompt and name look-up, but not its links.

Mininet's links run ``tc`` in a shell and drop rates above 1 Gbit/s. Its constructor changes system-wide sysctls unless
a flag says that this has been done. So wanbed creates interfaces itself and registers them with Mininet later.
"""

import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Unpack

from mininet.link import Intf
from mininet.net import Mininet
from mininet.node import Node

from wanbed.ground.errors import MissingError
from wanbed.module_process import module_command
from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.hosts.host import HostProcess, Program, SpawnOptions
from wanbed.testbed.hosts.host_environment import covered
from wanbed.testbed.hosts.joining import enter_host, entering
from wanbed.testbed.kernel.killed import KilledError
from wanbed.testbed.kernel.open_files import allow_open_files
from wanbed.testbed.network.addressing import HOST_INTERFACE

_PROMPT_S = 30.0
"""Limit on waiting for a shell to print anything."""
_LOOK_S = 0.1
_DESCRIPTORS = 16_384
"""Soft limit of open files that this process sets, if allowed: a host takes about three; most shells allow 1024."""


class EmulatedHost(Node):  # type: ignore[misc]
    """A Mininet node with its own host name; its processes' environment has the testbed's identifier, ``marker``."""

    def __init__(self, name: str, marker: str, **params: Any) -> None:
        self._marker = marker
        self._printed = "it printed nothing"
        super().__init__(name, **params)

    def _popen(self, cmd: list[str], **params: Any) -> Any:
        name = shlex.quote(self.name)
        # In a user namespace the file is another's, but the system call is allowed.
        set_name = f'echo {name} 2> /dev/null > /proc/sys/kernel/hostname || hostname {name}; exec "$@"'
        environment = {**os.environ, **params.pop("env", {}), MARKER: self._marker}
        return super()._popen(["unshare", "--uts", "sh", "-c", set_name, "sh", *cmd], env=environment, **params)

    def read(self, size: int = 1024) -> str:
        """Read what the shell prints, as Mininet does, but not for ever.

        Mininet waits for the prompt of a shell even if the shell has ended. Raise MissingError then, with the last line
        that was printed: the namespaces of a host could not be made. Raise KilledError if a signal has ended it.
        """
        deadline = time.monotonic() + _PROMPT_S
        while not self.readbuf and not select.select([self.stdout], [], [], _LOOK_S)[0]:
            if self.shell.poll() is not None or time.monotonic() > deadline:
                ended = self.shell.returncode
                if ended is not None and ended < 0:
                    raise KilledError(f"{self.name}: the host's shell was ended by {signal.Signals(-ended).name}")
                how = f"printed nothing for {_PROMPT_S:.0f} s" if ended is None else "ended"
                raise MissingError(f"{self.name}: the host's shell {how}: {self._printed}: see `wanbed doctor`")
        text = str(super().read(size))
        self._printed = next((line for line in reversed(text.splitlines()) if line.strip()), self._printed)
        return text

    @property
    def namespace(self) -> str:
        """Path of the node's network namespace."""
        return f"/proc/{self.pid}/ns/net"

    @property
    def shell_pid(self) -> int | None:
        """PID of the node's shell."""
        return int(self.pid)

    def configure(self, etc: Path, address: str, environment: Mapping[str, str]) -> None:
        """Mount the files of ``etc`` on this host's /etc, and prepare Mininet's prompt.

        The prompt replaces the host's name by ``address``, and programs started there have ``environment``.
        """
        # Shows whose the host's namespaces are after the shell has ended, which it does when this process is killed.
        self.cmd("(setsid sleep infinity < /dev/null > /dev/null 2>&1 &)")
        for file, place in covered(etc):
            self.cmd("mount", "--bind", shlex.quote(str(file)), str(place))
        # The interface is created without Mininet.
        known = Intf(HOST_INTERFACE, node=self, moveIntfFn=lambda *_: None, up=None)
        known.ip, known.prefixLen = address, 32
        for name, value in environment.items():
            self.cmd("export", f"{name}={shlex.quote(value)}")

    def spawn(self, argv: list[str], **popen: Unpack[SpawnOptions]) -> subprocess.Popen[Any]:
        """Start any program on this host, in its network, mount and UTS namespaces."""
        return enter_host(self.pid, self._marker, argv, **popen)

    def start_module(
        self, module: str, arguments: list[str], output: int, environment: Mapping[str, str]
    ) -> HostProcess:
        """Run ``main(arguments)`` of a Python module on this host, in a new Python process."""
        program = module_command(module, *arguments)
        argv, full_environment = entering(self.pid, self._marker, program, {**os.environ, **environment})
        return Program(argv, env=full_environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def stop_shell(self) -> None:
        """Kill the node's shell. The namespaces end with their last process."""
        if self.shell is None:
            return
        with suppress(ProcessLookupError):
            os.kill(self.shell.pid, signal.SIGKILL)
        self.shell.wait()
        self.cleanup()


class EmulatedNetwork(Mininet):  # type: ignore[misc]
    """Register the testbed's hosts with Mininet, for its prompt, without creating links or changing the system."""

    def __init__(self) -> None:
        # Set on Mininet's own class, where Mininet checks whether it still has to change the machine's sysctls.
        Mininet.inited = True
        allow_open_files("hosts", _DESCRIPTORS)
        super().__init__(topo=None, controller=None, build=False)
        self.built = True

    @property
    def module_parent(self) -> int:
        """PID of the process that starts the hosts' programs: this one."""
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
