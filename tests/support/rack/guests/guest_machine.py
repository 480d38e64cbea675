"""A whole machine played by a User-Mode Linux guest, for tests of racks on a machine alone.

It has its own kernel, with netem, its own boot id and its own card: a TAP device on a ``GuestWire``. Its file system is
this machine's, read-only. Its own, and empty at first, are ``/tmp``, ``/run``, ``/dev`` and ``/dev/shm``. Like a real
machine, it loads kernel modules when they are needed. Its one processor is slow at starting programs.

The card sends and receives packets of the wire. With offloads it would receive each into a buffer of 64 KiB, which the
kernel counts as received bytes: a window of the host's TCP then has room for as little as a twelfth of what it says.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.rack.guests.guest_commands import GuestCommand, connect
from tests.support.rack.guests.guest_wire import OUTSIDE_ADDRESS, PREFIX, GuestWire
from wanbed.testbed.kernel.user_mode_linux import fitted_kernel
from wanbed.testbed.substrate.guest_kernel import GUEST_PROGRAM, MODULES_ROOT
from wanbed.testbed.virtual_time.guest_place import raise_map_count

ROOT = Path(__file__).resolve().parents[4]
CARD = "eth0"
_FIRST_OCTET = 10
_BOOT_DEADLINE_S = 90.0
_NICE = -20
"""A machine's network goes on whatever this machine does besides, like that of a gateway guest."""
_OWN_MODULES = "/run/modules"


class GuestMachine:
    """Machine ``number`` of a wire, which runs for the duration of a ``with`` block and ends with this process.

    Kernel modules in ``lacking`` cannot be loaded. Folders in ``shared`` are this machine's at the same path, writable.
    """

    def __init__(
        self,
        wire: GuestWire,
        number: int,
        *,
        name: str | None = None,
        memory_mib: int = 2048,
        mtu_bytes: int = 1500,
        lacking: Sequence[str] = (),
        shared: Sequence[Path] = (),
    ) -> None:
        self.name = name or f"node{number}"
        self.address = f"{PREFIX}.{_FIRST_OCTET + number}"
        self._wire = wire
        self._number = number
        self._memory_mib = memory_mib
        self._mtu_bytes = mtu_bytes
        self._lacking = lacking
        self._shared = shared
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            self._folder = Path(starting.enter_context(tempfile.TemporaryDirectory(prefix=f"{self.name}-")))
            self._process = subprocess.Popen(
                self._launch(),
                stdin=subprocess.DEVNULL,
                stdout=starting.enter_context((self._folder / "console.log").open("wb")),
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": "/dev/shm"},
                start_new_session=True,
            )
            starting.callback(self.power_off)
            try:
                self._wire.plug_in(self._tap, self._process, self._mtu_bytes)
            except RuntimeError as fault:
                raise RuntimeError(f"{fault}: {self.console()[-2000:]}") from fault
            self._stack = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def pid(self) -> int:
        """PID of the process whose end is the machine's: killing it is pulling the plug."""
        return self._process.pid

    def power_off(self) -> None:
        """End the machine at once, with everything that runs on it."""
        self._process.kill()
        self._process.wait()
        self._wire.await_unplugged(self._tap)

    def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str] | None = None,
        folder: Path = ROOT,
        *,
        has_input: bool = False,
    ) -> GuestCommand:
        """Start a program on the machine, as soon as the machine has booted.

        It gets the few variables of ``boot_script`` and ``environment``, none of this process's.
        """
        try:
            connection = connect(self._wire.namespace, self.address, self._process, _BOOT_DEADLINE_S)
        except OSError as fault:
            raise RuntimeError(f"{self.name} does not answer ({fault}): {self.console()[-2000:]}") from fault
        return GuestCommand(connection, argv, environment or {}, folder, has_input=has_input)

    def run(
        self, argv: Sequence[str], environment: Mapping[str, str] | None = None, *, timeout_s: float = 60.0
    ) -> tuple[int, str]:
        """Run a program on the machine, and return its exit status and its output, standard error included."""
        with self.start(argv, environment) as command:
            return command.wait(timeout_s), command.output()

    def check(
        self, argv: Sequence[str], environment: Mapping[str, str] | None = None, *, timeout_s: float = 60.0
    ) -> str:
        """Run a program that must succeed, and return its output."""
        status, output = self.run(argv, environment, timeout_s=timeout_s)
        if status != 0:
            raise RuntimeError(f"{self.name}: {shlex.join(argv)}: exit status {status}: {output}")
        return output

    def console(self) -> str:
        """Return what the machine's kernel and its first process have printed."""
        return (self._folder / "console.log").read_text(errors="replace")

    @property
    def _tap(self) -> str:
        return f"tap{self._number}"

    def _launch(self) -> list[str]:
        program = shutil.which(GUEST_PROGRAM)
        if program is None:
            raise RuntimeError(f"{GUEST_PROGRAM} is not installed: apt-get install user-mode-linux kmod")
        raise_map_count()
        script = self._folder / "boot"
        script.write_text(self.boot_script())
        script.chmod(0o700)
        mac = f"02:05:00:00:00:{self._number:02x}"
        kernel = [
            str(fitted_kernel(Path(program))),
            *("rootfstype=hostfs", "rootflags=/", "ro", f"init={script}", f"mem={self._memory_mib}M"),
            *("con=null", "con0=null,fd:1", "con1=null", "quiet"),
            *(f"uml_dir={self._folder}", "umid=machine"),
            f"vec0:transport=tap,ifname={self._tap},depth=256,mac={mac}",
        ]
        return [
            *("nice", f"--adjustment={_NICE}", "setpriv", "--pdeathsig", "KILL"),
            *self._wire.command(["unshare", "--pid", "--fork", "--kill-child"]),
            # A shell is the namespace's process 1: there, the guest's kernel itself would miss signals.
            *("sh", "-c", '"$@"; true', "machine", *kernel),
        ]

    def boot_script(self) -> str:
        """Return the script of the machine's first process, which ends as the server of its commands."""
        own_modprobe = f"{_OWN_MODULES}/modprobe"
        refused = "".join(f'case "$*" in *{each.replace("_", "[-_]")}*) exit 1;; esac\n' for each in self._lacking)
        server = [sys.executable, "-m", "tests.support.rack.guests.guest_commands"]
        return "\n".join(
            [
                "#!/bin/sh",
                "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "mount -t proc proc /proc",
                "mount -t sysfs sysfs /sys",
                "mount -t devtmpfs dev /dev",
                "mkdir -p /dev/pts /dev/shm",
                "mount -t devpts -o ptmxmode=666 devpts /dev/pts",
                "for link in fd:/proc/self/fd stdin:/proc/self/fd/0 stdout:/proc/self/fd/1 stderr:/proc/self/fd/2; do",
                '  [ -e "/dev/${link%%:*}" ] || ln -s "${link#*:}" "/dev/${link%%:*}"',
                "done",
                "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
                "mount -t tmpfs -o mode=755 tmpfs /run",
                "mount -t tmpfs -o mode=1777 tmpfs /tmp",
                *(f"mkdir -p {path}; mount -t hostfs -o {path} shared {path}" for path in self._quoted_shared()),
                f"mkdir -p {_OWN_MODULES}/lib /run/lock",
                f"ln -s {MODULES_ROOT} {_OWN_MODULES}/lib/modules",
                f"cat > {own_modprobe} << 'end'",
                "#!/bin/sh",
                f'{refused}exec /sbin/modprobe -d {_OWN_MODULES} "$@"',
                "end",
                f"chmod 755 {own_modprobe}",
                f"echo {own_modprobe} > /proc/sys/kernel/modprobe",
                f"hostname {self.name}",
                f"printf '127.0.0.1 localhost\\n{self.address} {self.name}\\n' > /run/hosts",
                "mount --bind /run/hosts /etc/hosts",
                "ip link set lo up",
                f"ip link set vec0 name {CARD} mtu {self._mtu_bytes} gso_max_segs 1 up",
                f"ip address add {self.address}/24 dev {CARD}",
                f"ip route add default via {OUTSIDE_ADDRESS}",
                "ulimit -n 65536",
                "unset mem uml_dir",
                "export HOME=/tmp LANG=C.UTF-8 TMPDIR=/tmp PYTHONDONTWRITEBYTECODE=1",
                f"export PYTHONPATH={shlex.quote(str(ROOT))}",
                f"cd {shlex.quote(str(ROOT))}",
                f"exec {shlex.join(server)} < /dev/null",
                "",
            ]
        )

    def _quoted_shared(self) -> list[str]:
        return [shlex.quote(str(path)) for path in self._shared]
