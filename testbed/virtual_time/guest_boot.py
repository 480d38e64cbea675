"""Compose what a virtual-time guest boots with: its kernel's command line, and the script of its first process.

The guest uses the machine's file system as it is; only ``/proc``, ``/sys``, ``/dev`` and ``/run`` are its own. Files
for the outside are in ``EXCHANGE``, which is a folder outside the guest.
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wanbed.ground.errors import InputError
from wanbed.testbed.hosts.host_environment import SYSTEM_PROGRAMS
from wanbed.testbed.kernel.inside import TIME_TRAVEL

OUTSIDE_EXCHANGE = Path("/run")
"""The exchange's path for the guest's kernel: a file system in memory, outside, in the guest's mount namespace."""
EXCHANGE = Path("/run/outside")
"""The exchange's path for programs inside the guest."""
MOUNT = "mount"
INIT, STANDARD_INPUT, STANDARD_OUTPUT, STANDARD_ERROR = "init", "stdin", "stdout", "stderr"
STATUS, KERNEL_LOG = "status", "kernel.log"
PROCESSES, PROCESSES_BEGUN = "processes", "processes.partial"
CONTROL = Path("uml/guest/mconsole")
"""The management console of the guest's kernel, a socket in the exchange."""

OWN_FOLDERS = tuple(Path(name) for name in ("/proc", "/sys", "/dev", "/run"))
"""Folders in which a guest sees none of the machine's files."""

_OPEN_FILES = 65_536
_MIB = 2**20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOG_ALL_BUT_DEBUG = 7


@dataclass(frozen=True)
class GuestCommand:
    """A program to run inside the guest, by default with this process's folder and environment.

    It reads ``standard_input``, which is complete at the start, because virtual time does not wait for the outside;
    nothing if None.
    """

    argv: Sequence[str]
    folder: Path = field(default_factory=Path.cwd)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    standard_input: bytes | None = None


def check_visible(path: Path, what: str) -> None:
    """Raise InputError for a path in one of ``OWN_FOLDERS``, which differ inside the guest."""
    resolved = path.resolve()
    hidden = next((own for own in OWN_FOLDERS if resolved.is_relative_to(own)), None)
    if hidden is not None:
        raise InputError(f"{what}: {path}: lies in {hidden}, which virtual time has of its own: put it elsewhere")


def kernel_command(kernel: Path, memory_bytes: int) -> list[str]:
    """Return the guest's kernel, as a program with its arguments."""
    return [
        str(kernel),
        TIME_TRAVEL,
        *("root=none", "rootfstype=hostfs", "rootflags=/", "rw", f"init={OUTSIDE_EXCHANGE / INIT}"),
        f"mem={memory_bytes // _MIB}M",
        # IPv6 would send its own packets at random times among those that are measured.
        "ipv6.disable_ipv6=1",
        # Entropy is gathered from what happens by chance. Nothing does here: take the machine's random numbers.
        "random.trust_cpu=on",
        # Consoles stall on long lines: only the kernel writes there, the command's output goes through files.
        *("con=null", "con0=null,fd:1", "con1=null", f"loglevel={_LOG_ALL_BUT_DEBUG}"),
        *(f"uml_dir={OUTSIDE_EXCHANGE / CONTROL.parts[0]}", f"umid={CONTROL.parts[1]}"),
    ]


def init_script(command: GuestCommand) -> str:
    """Return a shell script that runs the command and writes its exit status to the exchange.

    On SIGINT it writes a list of all processes to the exchange. It does not end by itself: the outside ends the guest.
    """
    exports = [
        f"export {name}={shlex.quote(value)}" for name, value in command.environment.items() if _NAME.fullmatch(name)
    ]
    given = EXCHANGE / STANDARD_INPUT if command.standard_input is not None else "/dev/null"
    processes, begun = EXCHANGE / PROCESSES, EXCHANGE / PROCESSES_BEGUN
    return "\n".join(
        [
            "#!/bin/sh",
            "set -e",
            "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            # If a user other than root starts the guest, root's files outside belong to nobody inside: a set-user-ID
            # program like mount would lose root. So use a copy without that bit, and remount with nosuid.
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
            # Ctrl-Alt-Del from the management console sends SIGINT to the first process instead of halting.
            "echo 0 > /proc/sys/kernel/ctrl-alt-del",
            "list_processes() {",
            "  for process in /proc/[0-9]*; do",
            "    state=; command=",
            # Kernel threads have no command line. Only built-ins, because starting programs is slow in the guest.
            '    read -r command < "$process/cmdline"; [ -n "$command" ] || continue',
            '    while read -r name value _; do [ "$name" != State: ] || state=$value; done < "$process/status"',
            '    command=$(tr "\\0\\n" "  " < "$process/cmdline")',
            '    echo "${process#/proc/} $state $command"',
            f"  done > {begun} 2> /dev/null",
            f"  mv {begun} {processes}",
            "}",
            "trap list_processes INT",
            # Real-time priority: otherwise a process that computes without a pause would delay the list.
            "chrt --fifo --pid 1 $$",
            f"ulimit -n {_OPEN_FILES}",
            # The kernel passes its own arguments to its first process as variables.
            "unset mem uml_dir",
            *exports,
            f'export PATH="$PATH:{SYSTEM_PROGRAMS}" TMPDIR=/dev/shm',
            f"cd {shlex.quote(str(command.folder))}",
            # To ping a clock below one second is one that it has not read yet: it would keep no interval.
            "sleep 1",
            "set +e",
            # A shell lets its background processes ignore both signals.
            f"chrt --other 0 env --default-signal=INT,QUIT {shlex.join(command.argv)} "
            f"< {given} >> {EXCHANGE / STANDARD_OUTPUT} 2>> {EXCHANGE / STANDARD_ERROR} &",
            "running=$!",
            # The SIGINT above interrupts waiting.
            'wait "$running"; status=$?',
            'while kill -0 "$running" 2> /dev/null; do wait "$running"; status=$?; done',
            "sync",
            f"echo $status > {EXCHANGE / STATUS}",
            "while :; do sleep 1000000; done",
            "",
        ]
    )
