"""Run a command in virtual time, inside a new virtual-time guest that ends with the command.

The guest is an ordinary process with its own PID and mount namespaces. It is a child of this process and dies with it.
So nothing of the guest is left however this process ends: neither a process nor a file.

Its kernel answers at a management console, a socket, regardless of the processes inside. Protocol version 2 (Linux:
arch/um/drivers/mconsole.h): datagrams of a header and text. An answer takes several datagrams; all but the last have a
flag for more.
"""

import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from io import FileIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from wanbed.ground.errors import MissingError, WanbedError
from wanbed.testbed.claims.piped_process import PipedProcess
from wanbed.testbed.kernel.user_mode_linux import fitted_kernel
from wanbed.testbed.virtual_time.guest_boot import (
    CONTROL,
    INIT,
    KERNEL_LOG,
    MOUNT,
    OUTSIDE_EXCHANGE,
    PROCESSES,
    PROCESSES_BEGUN,
    STANDARD_ERROR,
    STANDARD_INPUT,
    STANDARD_OUTPUT,
    STATUS,
    GuestCommand,
    init_script,
    kernel_command,
)
from wanbed.testbed.virtual_time.guest_place import GuestPlace
from wanbed.testbed.virtual_time.kernel_cache import VirtualKernel
from wanbed.testbed.virtual_time.watchdog import (
    PATIENT,
    InnerProcess,
    Look,
    OutsideView,
    Watch,
    Watchdog,
    described,
    parse_processes,
    waiting,
)

_REQUEST = struct.Struct("=III512s")
_ANSWER = struct.Struct("=III")
_MAGIC, _VERSION = 0xCAFEBABE, 2

_REGISTERS, _CONTROL_ALT_DELETE = "sysrq p", "cad"
"""Commands: report the running process; send SIGINT to the first process.

``sysrq t``, which would report all processes, crashes User-Mode Linux 6.1.
"""


def send_command(console: Path, text: str, patience_s: float) -> str | None:
    """Send a command and return the answer, None if none comes in ``patience_s`` or the kernel is gone."""
    deadline = time.monotonic() + patience_s
    lines = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as ours:
        try:
            # The answer goes to a name that the kernel assigns here.
            ours.bind("")
            ours.sendto(_REQUEST.pack(_MAGIC, _VERSION, len(text), text.encode()), str(console))
            while True:
                ours.settimeout(max(0.001, deadline - time.monotonic()))
                answer = ours.recv(4096)
                _, more, length = _ANSWER.unpack_from(answer)
                lines.append(answer[_ANSWER.size : _ANSWER.size + length].rstrip(b"\0").decode(errors="replace"))
                if not more:
                    return "".join(lines)
        except OSError:
            return None


_LOOK_INTERVAL_S = 0.03
_AT_PROCESSOR = re.compile(r"Pid: (\d+), comm: (.*?) (?:Not t|T)ainted")
_KERNEL_TIME = re.compile(r"^\[ *\d+\.\d+\] ")
_WATCH_INTERVAL_S = 0.5
_ASKING_S = 20.0
_CHUNK_BYTES = 2**20
_PANIC, _OUT_OF_MEMORY = "Kernel panic", "Out of memory: Killed process"

_KILLED = "the virtual-time guest was killed before it began"


class GuestError(WanbedError):
    """A guest died, got stuck or ran out of memory, or its clock cannot be read; the message is one line.

    If the guest is stuck, the message names the processes inside.
    """


def run_inside(
    command: GuestCommand,
    kernel: VirtualKernel,
    place: GuestPlace,
    *,
    standard_output: BinaryIO | None = None,
    standard_error: BinaryIO | None = None,
    watch: Watch = PATIENT,
) -> int:
    """Run a command in virtual time and return its exit status, or 128 + signal number if a signal ended it.

    The command runs as root of the guest. Its output is relayed as it appears, by default to this process's standard
    output and error.

    Raise MissingError if no guest can start, and GuestError for a guest that dies or that is stuck, as ``watch`` finds.
    """
    with (
        _running_guest(kernel, place, command) as guest,
        guest.open(STANDARD_OUTPUT) as output,
        guest.open(STANDARD_ERROR) as error,
    ):
        relays = [(output, standard_output or sys.stdout.buffer), (error, standard_error or sys.stderr.buffer)]
        watchdog, watched_s, passed = Watchdog(watch.patience), time.monotonic(), 0
        while True:
            ended = guest.wait(_LOOK_INTERVAL_S)
            status = guest.status()
            passed += sum(_relay(source, sink) for source, sink in relays)
            if status and guest.out_of_memory():
                raise GuestError(
                    f"virtual time ran out of its {place.memory_bytes >> 20} MiB of memory, which ended a process: "
                    f"make room in {place.memory_folder} and in memory, or take fewer hosts, connections or bytes"
                )
            if status is not None:
                return status
            if ended:
                raise GuestError(f"virtual time ended: its kernel died: {guest.stderr_tail()}")
            if time.monotonic() - watched_s > _WATCH_INTERVAL_S:
                watched_s = time.monotonic()
                look = guest.look(passed if watch.sign is None else watch.sign())
                spins = None if look is None else watchdog.spins(look)
                if spins is not None:
                    raise GuestError(guest.stuck(spins=spins))


def _relay(source: FileIO, sink: BinaryIO) -> int:
    """Copy what is available, and return the number of bytes."""
    passed = 0
    while data := source.read(_CHUNK_BYTES):
        sink.write(data)
        passed += len(data)
    if passed:
        sink.flush()
    return passed


def namespaces() -> list[str]:
    """Return the options of ``unshare`` for a guest's namespaces.

    A user other than root needs a user namespace to create the others.
    """
    own = ["--mount", "--pid", "--fork", "--kill-child"]
    return own if os.geteuid() == 0 else ["--user", "--map-root-user", *own]


@contextmanager
def _running_guest(kernel: VirtualKernel, place: GuestPlace, command: GuestCommand) -> Iterator["Guest"]:
    """Start a guest that runs a command; after the block everything inside is killed, and gone.

    Raise MissingError if no guest can start, and GuestError if it was killed before it began.
    """
    environment = {**os.environ, "TMPDIR": str(place.memory_folder)}
    with (
        TemporaryFile() as stderr,
        closing(PipedProcess(_launch(kernel, place), environment, stderr=stderr)) as process,
    ):
        script = init_script(command).encode()
        with suppress(BrokenPipeError):
            process.stdin.write(f"{len(script)}\n".encode() + script + (command.standard_input or b""))
            process.stdin.close()
        if not process.stdout.readline():
            process.wait()
            stderr.seek(0)
            words = stderr.read().decode(errors="replace").strip()
            # Without a word, or with unshare's on its child that a signal has ended.
            if not words or "sigprocmask" in words:
                raise GuestError(_KILLED)
            raise MissingError(f"virtual time does not start here: {words}: `wanbed doctor` lists what it needs")
        try:
            exchange = os.open(f"/proc/{process.pid}/root{OUTSIDE_EXCHANGE}", os.O_PATH | os.O_DIRECTORY)
        except FileNotFoundError:
            raise GuestError(_KILLED) from None
        try:
            yield Guest(process, exchange, OutsideView(process.pid, kernel.record.clock_address))
        finally:
            os.close(exchange)


def _launch(kernel: VirtualKernel, place: GuestPlace) -> list[str]:
    """Return a command line whose process, with all its children, dies with this process."""
    # A shell is the namespace's process 1: there, the guest's kernel itself would miss signals.
    steps = [
        "set -e",
        f"mount -t tmpfs -o mode=700 exchange {OUTSIDE_EXCHANGE}",
        f"cd {OUTSIDE_EXCHANGE}",
        f"IFS= read -r size; head -c $size > {INIT}; cat > {STANDARD_INPUT}; chmod 700 {INIT}",
        f'cp "$(command -v mount)" {MOUNT}',
        f": > {STANDARD_OUTPUT}; : > {STANDARD_ERROR}",
        "ulimit -c 0",
        "echo ready",
        "exec > /dev/null 2>&1 < /dev/null",
        f'"$@" > {KERNEL_LOG} 2>&1; true',
    ]
    return [
        *("setpriv", "--pdeathsig", "KILL"),
        *("taskset", "--cpu-list", str(place.core)),
        *("unshare", *namespaces(), "sh", "-c", "\n".join(steps), "guest"),
        *kernel_command(fitted_kernel(kernel.program), place.memory_bytes),
    ]


class Guest:
    """One virtual-time guest, which runs. ``exchange`` is a descriptor of the folder for its files."""

    def __init__(self, process: PipedProcess, exchange: int, view: OutsideView) -> None:
        self._process = process
        self._exchange = exchange
        self._view = view

    def open(self, name: str) -> FileIO:
        """Open a file of the exchange for reading."""
        return os.fdopen(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._exchange), "rb", buffering=0)

    def read(self, name: str) -> str:
        """Return the text of a file of the exchange, empty if it does not exist."""
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._exchange)
        except FileNotFoundError:
            return ""
        with os.fdopen(descriptor, "r", errors="replace") as file:
            return file.read()

    def exists(self, name: str) -> bool:
        """Return whether the exchange has a file of this name."""
        try:
            os.stat(name, dir_fd=self._exchange)
        except FileNotFoundError:
            return False
        return True

    def status(self) -> int | None:
        """Return the command's exit status, None while it runs."""
        text = self.read(STATUS)
        return int(text) if text.endswith("\n") else None

    def stderr_tail(self) -> str:
        """Return the last line of the guest kernel's log; after a panic, the last line about it."""
        lines = [_KERNEL_TIME.sub("", line) for line in self.read(KERNEL_LOG).splitlines() if line.strip()]
        panics = [line for line in lines if _PANIC in line]
        return (panics or lines or ["its log is empty"])[-1]

    def out_of_memory(self) -> bool:
        """Return whether the guest's kernel has killed a process for lack of memory."""
        return _OUT_OF_MEMORY in self.read(KERNEL_LOG)

    def look(self, sign: object) -> Look | None:
        """Observe the guest; return None while its kernel starts or ends.

        Raise GuestError if this process may not read the guest's memory.
        """
        try:
            virtual_ns = self._view.virtual_ns()
        except PermissionError as fault:
            raise GuestError(
                f"the clock of a guest cannot be read ({fault.strerror}): allow tracing of processes"
            ) from None
        return None if virtual_ns is None else Look(time.monotonic(), virtual_ns, self._view.cpu_s(), sign)

    def stuck(self, *, spins: bool) -> str:
        """Return one line that describes why the guest makes no progress, with the processes responsible."""
        console = Path(f"/proc/{self._process.pid}/root") / OUTSIDE_EXCHANGE.relative_to("/") / CONTROL
        at_processor = _AT_PROCESSOR.search(send_command(console, _REGISTERS, _ASKING_S) or "")
        send_command(console, _CONTROL_ALT_DELETE, _ASKING_S)
        deadline = time.monotonic() + _ASKING_S
        while not (text := self.read(PROCESSES)) and time.monotonic() < deadline:
            # The first process has real-time priority: nothing computes in its way once it has begun its list.
            if spins and not self.exists(PROCESSES_BEGUN):
                self._view.interrupt_spinning()
            if self.wait(_LOOK_INTERVAL_S):
                break
        processes = parse_processes(text)
        if not spins:
            found = waiting(processes, str(OUTSIDE_EXCHANGE / INIT))
            return f"virtual time is stuck, all wait, and nothing happens: {described(found)}"
        # A process missing from the list, because it is too early or has ended, has only the kernel's short name.
        running = [InnerProcess(int(at_processor[1]), "R", at_processor[2])] if at_processor else []
        numbers = [process.number for process in running]
        running = [process for process in processes if process.number in numbers] or running
        return f"virtual time is stuck, it computes and does not wait, so that no time passes: {described(running)}"

    def wait(self, seconds: float) -> bool:
        """Wait until the guest has ended, at most for ``seconds``; return whether it has."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
