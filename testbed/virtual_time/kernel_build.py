"""Build the virtual-time kernel from the distribution's source package into the user's cache: ``make virtual``.

The kernel appears in the cache atomically. The output of a failed build is kept there in a log.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from wanbed.ground.errors import MissingError
from wanbed.testbed.virtual_time.kernel_cache import (
    COMPILER_OPTIONS,
    PROGRAM,
    WANTED,
    KernelRecord,
    cache_folder,
    configuration,
    configuration_hash,
    kernel_folder,
    write_record,
)

_SOURCES = Path("/usr/src")
_SOURCE_PATTERN = "linux-source-*.tar.xz"
_NEEDED_BYTES = 2 * 2**30
_CLOCK_SYMBOL = "time_travel_time"
MACHINE_LACKS, FAILED = 5, 4

_MAKE = ("make", "ARCH=um")
_TOOLS = ("gcc", "flex", "bison", "bc", "make", "tar", "xz", "nm")
_NOT_COMPILED = (
    *("Documentation/*/*", "tools/testing/*", "tools/perf/*", "sound/*.[ch]", "arch/[!ux]*.[chS]"),
    # All but those in base, char, net and tty.
    *("drivers/[!bcnt]*.[ch]", "drivers/net/ethernet/*.[ch]", "drivers/net/wireless/*.[ch]"),
)
"""Parts of the source that need not be unpacked, three quarters of it. Kconfig reads the rest of every folder."""


class BuildError(Exception):
    """The kernel could not be built; the message is one line with the cause and the log."""


def find_source(folder: Path = _SOURCES) -> Path:
    """Return the archive of the newest kernel source that is installed. Raise MissingError if there is none."""
    found = sorted(folder.glob(_SOURCE_PATTERN), key=_source_version)
    if not found:
        raise MissingError(f"no kernel source in {folder}: apt-get install linux-source")
    return found[-1]


def _source_version(archive: Path) -> tuple[int, ...]:
    version = archive.name.removeprefix("linux-source-").removesuffix(".tar.xz")
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))


def _describe_source(archive: Path) -> str:
    """Return the source's package and its version, or its size and time if the package manager does not know it."""
    package = archive.name.removesuffix(".tar.xz")
    state = archive.stat()
    version = f"of {state.st_size} bytes, {state.st_mtime_ns}"
    with suppress(OSError, subprocess.CalledProcessError):
        command = ["dpkg-query", "--show", "--showformat=${Version}", package]
        version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() or version
    return f"{package} {version}"


def build(archive: Path, root: Path) -> Path:
    """Build the kernel from ``archive`` unless it is in ``root``, and return its folder.

    Raise MissingError for a missing tool or too little disk space, BuildError if the build fails.
    """
    source = _describe_source(archive)
    folder = kernel_folder(source, root)
    root.mkdir(parents=True, exist_ok=True)
    with _alone(root / "lock"):
        if folder.is_dir():
            return folder
        _check_machine(root)
        for left_behind in root.glob("*.partial"):
            shutil.rmtree(left_behind, ignore_errors=True)
        with tempfile.TemporaryDirectory(suffix=".partial", dir=root) as work:
            _build_in(Path(work), archive, source, folder)
    return folder


def _build_in(work: Path, archive: Path, source: str, folder: Path) -> None:
    log_path = folder.with_name(f"{folder.name}.log")
    with log_path.open("wb") as log:
        left_out = [f"--exclude={archive.name.removesuffix('.tar.xz')}/{part}" for part in _NOT_COMPILED]
        _logged(log, "unpacking the source", ["tar", "xf", archive, "--anchored", *left_out], work)
        tree = next(path for path in work.iterdir() if path.is_dir())
        wanted = work / "wanted"
        wanted.write_text(configuration())
        _logged(log, "setting options", [*_MAKE, f"KCONFIG_ALLCONFIG={wanted}", "allnoconfig"], tree)
        if strayed := strayed_options((tree / ".config").read_text()):
            raise BuildError(f"{archive}: this kernel's configuration does not take {', '.join(strayed)}")
        faster = f"KCFLAGS={' '.join(COMPILER_OPTIONS)}"
        _logged(log, "compiling", [*_MAKE, faster, f"--jobs={len(os.sched_getaffinity(0))}", PROGRAM], tree)
        release = _answer([*_MAKE, "--silent", "kernelrelease"], tree)
        symbols = [line.split() for line in _answer(["nm", PROGRAM], tree).splitlines()]
        (clock_address,) = (int(words[0], 16) for words in symbols if words[-1] == _CLOCK_SYMBOL)
        record = KernelRecord(release, source, configuration_hash(), clock_address)
        made = work / "made"
        made.mkdir()
        shutil.copy(tree / PROGRAM, made / PROGRAM)
        shutil.copy(tree / ".config", made / "config")
        write_record(made, record)
        made.rename(folder)
    log_path.unlink()


def strayed_options(resolved: str) -> list[str]:
    """Return the options that a resolved configuration does not have built in."""
    return [option for option in WANTED if f"CONFIG_{option}=y" not in resolved.splitlines()]


def _logged(log: IO[bytes], what: str, command: list[str | Path], folder: Path) -> None:
    print(f"virtual-time kernel: {what}", flush=True)
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        raise BuildError(f"{what} failed: see {log.name}")


def _answer(command: list[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def _check_machine(root: Path) -> None:
    lacking = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if lacking:
        raise MissingError(f"{', '.join(lacking)} not installed: ./setup.sh virtual")
    free_bytes = shutil.disk_usage(root).free
    if free_bytes < _NEEDED_BYTES:
        raise MissingError(
            f"{root}: building takes {_NEEDED_BYTES >> 20} MiB for a while, {free_bytes >> 20} are free: make room, or "
            "name another place in XDG_CACHE_HOME"
        )


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock against other builds of this user. Another build may produce the wanted kernel meanwhile."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Build the kernel, print its path or why there is none, and return the exit status."""
    start_s = time.monotonic()
    try:
        folder = build(find_source(), cache_folder())
    except MissingError as lack:
        print(f"make virtual: {lack}", file=sys.stderr)
        return MACHINE_LACKS
    except BuildError as fault:
        print(f"make virtual: {fault}", file=sys.stderr)
        return FAILED
    except OSError as fault:
        print(f"make virtual: {fault.filename}: {fault.strerror}", file=sys.stderr)
        return FAILED
    print(f"virtual-time kernel: {folder / PROGRAM} ({time.monotonic() - start_s:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
