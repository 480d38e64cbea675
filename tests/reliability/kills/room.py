"""A room of its own for commands that are disturbed: whatever they leave is seen, and nobody else's is.

The room has its own mounts, its own network and empty folders where wanbed and its programs keep things for a while.
Its process adopts what loses its parent.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.testbed.processes import children, command_line, descendants
from wanbed.testbed.claims.processes import process_start_ticks
from wanbed.testbed.claims.registry import STATE_ROOT
from wanbed.workloads.user_programs.program_watch import adopt_descendants

INSIDE = "--inside"
_SHARED_MEMORY = Path("/dev/shm")
CLEAN_S = 30.0
"""How long something may be left of a command that was disturbed."""
_LOOK_S = 0.05


def call_inside(arguments: Sequence[str]) -> int:
    """Call the program that this process runs, with these arguments, inside a room, and return its status."""
    module = sys.orig_argv[: sys.orig_argv.index("-m") + 2]
    room = ["unshare", "--mount", "--net", "--propagation", "private"]
    # Its path is short, since paths of sockets below it may not be long.
    with TemporaryDirectory(prefix="wb-") as folder:
        return subprocess.call([*room, sys.executable, *module[1:], *arguments, INSIDE, folder])


class Room:
    """The room that this process is in, after ``call_inside``; ``folder`` is an empty one for whatever is in it."""

    def __init__(self, folder: Path) -> None:
        adopt_descendants()
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        STATE_ROOT.mkdir(exist_ok=True)
        for each in (STATE_ROOT, _SHARED_MEMORY, folder):
            _mount(each)
        self._scratch, temporary = folder, folder / "t"
        temporary.mkdir()
        os.environ["TMPDIR"] = str(temporary)
        self._folders = (STATE_ROOT, _SHARED_MEMORY, temporary)

    @contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        """Yield an empty folder. With the block it is removed, and what is left in the room is ended."""
        folder = self._scratch / name
        folder.mkdir()
        try:
            yield folder
        finally:
            self.clear()
            shutil.rmtree(folder)

    def contents(self, own: Sequence[int] = ()) -> frozenset[str]:
        """Return a line for each process, file, mount and link in the room.

        Others await the end of the processes in ``own``.
        """
        for pid in children(os.getpid()):
            if pid not in own and process_start_ticks(pid) is None:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        found = [f"process {pid} {command_line(pid)}" for pid in self._processes()]
        found += [f"file {path}" for folder in self._folders for path in folder.iterdir()]
        found += [f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        found += [f"link {name}" for _, name in socket.if_nameindex()]
        return frozenset(found)

    def left_since(self, before: frozenset[str], own: Sequence[int] = ()) -> list[str]:
        """Return what is left after a while that was not there before, as lines."""
        deadline_s = time.monotonic() + CLEAN_S
        while (left := self.contents(own) - before) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
        return sorted(left)

    def clear(self) -> None:
        """End every process that is left, and empty the folders."""
        while left := self._processes():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_LOOK_S)
        for path in (path for folder in self._folders for path in folder.iterdir()):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _processes(self) -> list[int]:
        return [pid for pid in descendants(os.getpid()) if process_start_ticks(pid) is not None]


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    """Have an empty file system in memory at a folder, which is made."""
    folder.mkdir()
    _mount(folder, *options)
    try:
        yield
    finally:
        # Lazily: where this process is told to end, commands may still be using it.
        subprocess.run(["umount", "--lazy", folder], check=True)


def remount(folder: Path, *options: str) -> None:
    """Change the options of the file system at a folder."""
    subprocess.run(["mount", "-o", ",".join(("remount", *options)), folder], check=True)


def _mount(folder: Path, *options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(("mode=755", *options)), "tmpfs", folder], check=True)
