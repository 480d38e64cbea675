"""Give a guest what it starts with: the command line of its kernel, and the script that is its first process.

Inside, the machine's file system is the guest's, as it is; the guest has only ``/proc``, ``/sys``, ``/dev`` and
``/run`` of its own. What it reports to the outside lies in ``EXCHANGE``, which is a folder of the outside.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ground.strict_model import InputError
from testbed.kernel.inside import TIME_TRAVEL

OUTSIDE_EXCHANGE = Path("/run")
"""Where the exchange lies for the guest's kernel, on the outside: a file system in memory that only the guest has."""
EXCHANGE = Path("/run/outside")
"""The same for programs inside."""
MOUNT = "mount"
INIT, STANDARD_INPUT, STANDARD_OUTPUT, STANDARD_ERROR = "init", "stdin", "stdout", "stderr"
STATUS, PROCESSES, KERNEL_LOG = "status", "processes", "kernel.log"
CONTROL = Path("uml/guest/mconsole")
"""The socket on which the guest's kernel takes orders, in the exchange."""

OWN_FOLDERS = tuple(Path(name) for name in ("/proc", "/sys", "/dev", "/run"))
"""Those in which a guest sees nothing of the machine's."""

_OPEN_FILES = 65_536
_MIB = 2**20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOG_ALL_BUT_DEBUG = 7


@dataclass(frozen=True)
class GuestCommand:
    """A program to run inside: its arguments, the folder it starts in, and its environment.

    With ``has_input`` it reads the exchange's ``STANDARD_INPUT``, else nothing.
    """

    argv: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    has_input: bool = False


def check_visible(path: Path, what: str) -> None:
    """Raise InputError for a path that means something else inside."""
    resolved = path.resolve()
    hidden = next((own for own in OWN_FOLDERS if resolved.is_relative_to(own)), None)
    if hidden is not None:
        raise InputError(f"{what}: {path}: lies in {hidden}, which virtual time has of its own: put it elsewhere")


def kernel_command(kernel: Path, memory_bytes: int) -> list[str]:
    """Return the guest's kernel, as a program with its arguments."""
    return [
        str(kernel),
        TIME_TRAVEL,
        *("rootfstype=hostfs", "rootflags=/", "rw", f"init={OUTSIDE_EXCHANGE / INIT}"),
        f"mem={memory_bytes // _MIB}M",
        # Without addresses of its own, nothing announces itself at random times among the packets that are measured.
        "ipv6.disable_ipv6=1",
        # Consoles stall on long lines: only the kernel itself talks there, the command's output goes through files.
        *("con=null", "con0=null,fd:1", "con1=null", f"loglevel={_LOG_ALL_BUT_DEBUG}"),
        *(f"uml_dir={OUTSIDE_EXCHANGE / CONTROL.parts[0]}", f"umid={CONTROL.parts[1]}"),
    ]


def init_script(command: GuestCommand) -> str:
    """Return a shell script that runs the command and leaves its exit status in the exchange.

    On SIGINT it writes down all processes inside. It does not end by itself: the outside ends the guest.
    """
    exports = [
        f"export {name}={shlex.quote(value)}" for name, value in command.environment.items() if _NAME.fullmatch(name)
    ]
    given = EXCHANGE / STANDARD_INPUT if command.has_input else "/dev/null"
    processes = EXCHANGE / PROCESSES
    return "\n".join(
        [
            "#!/bin/sh",
            "set -e",
            "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            # Started by anybody but root, a guest sees what is root's outside as nobody's: a program that becomes its
            # owner, like mount, would lose root. So first by a copy that does not, then never again.
            f"{OUTSIDE_EXCHANGE / MOUNT} -t proc proc /proc",
            f"{OUTSIDE_EXCHANGE / MOUNT} -o remount,bind,nosuid /",
            "mount -t sysfs sysfs /sys",
            "mount -t tmpfs -o mode=755 tmpfs /run",
            f"mkdir -p {EXCHANGE} /dev/pts /dev/shm",
            f"mount -t hostfs -o {OUTSIDE_EXCHANGE} exchange {EXCHANGE}",
            "mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts",
            "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
            "for link in fd:/proc/self/fd stdin:/proc/self/fd/0 stdout:/proc/self/fd/1 stderr:/proc/self/fd/2; do",
            '  [ -e "/dev/${link%%:*}" ] || ln -s "${link#*:}" "/dev/${link%%:*}"',
            "done",
            "ip link set lo up",
            # SIGINT to the first process, in place of halting, is how the outside asks.
            "echo 0 > /proc/sys/kernel/ctrl-alt-del",
            "tell_processes() {",
            "  for process in /proc/[0-9]*; do",
            "    state=; words=",
            # Threads of the kernel have none; starting a program to look is slow in here.
            '    read -r words < "$process/cmdline"; [ -n "$words" ] || continue',
            '    while read -r name value _; do [ "$name" != State: ] || state=$value; done < "$process/status"',
            '    words=$(tr "\\0\\n" "  " < "$process/cmdline")',
            '    echo "${process#/proc/} $state $words"',
            f"  done > {processes}.partial 2> /dev/null",
            f"  mv {processes}.partial {processes}",
            "}",
            "trap tell_processes INT",
            # Ahead of whatever computes without a pause: else the question would have to wait for it.
            "chrt --fifo --pid 1 $$",
            f"ulimit -n {_OPEN_FILES}",
            *exports,
            'export PATH="$PATH:/usr/sbin:/sbin" TMPDIR=/dev/shm',
            f"cd {shlex.quote(str(command.folder))}",
            "set +e",
            # A shell has what runs in its background ignore both.
            f"chrt --other 0 env --default-signal=INT,QUIT {shlex.join(command.argv)} "
            f"< {given} >> {EXCHANGE / STANDARD_OUTPUT} 2>> {EXCHANGE / STANDARD_ERROR} &",
            "running=$!",
            # What interrupts waiting is the question above.
            'wait "$running"; status=$?',
            'while kill -0 "$running" 2> /dev/null; do wait "$running"; status=$?; done',
            "sync",
            f"echo $status > {EXCHANGE / STATUS}",
            "while :; do sleep 1000000; done",
            "",
        ]
    )
