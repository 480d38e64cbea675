"""Store built virtual-time kernels in the user's cache, one folder for each configuration and source.

::

    <XDG_CACHE_HOME or ~/.cache>/wanbed/virtual-kernel/<hash>/
        linux          the kernel, a program
        kernel.json    its release, source and configuration
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from wanbed.ground.files.trusted_path import sudo_caller, trusted
from wanbed.ground.files.user_cache import searched_caches, user_cache
from wanbed.testbed.kernel.missing import MissingError
from wanbed.testbed.virtual_time.kernel.kernel_options import configuration_hash

PROGRAM, RECORD = "linux", "kernel.json"
REMEDY = "make virtual"
_NAME = "virtual-kernel"


@dataclass(frozen=True)
class KernelRecord:
    """The sources of a kernel; ``clock_address`` is the address in its memory of its clock, in nanoseconds."""

    release: str
    source: str
    configuration_hash: str
    clock_address: int


@dataclass(frozen=True)
class VirtualKernel:
    """A kernel that is ready to boot."""

    program: Path
    record: KernelRecord


def cache_folder() -> Path:
    """Return the folder for the folders of all kernels; it need not exist."""
    return user_cache(_NAME)


def kernel_folder(source: str, root: Path) -> Path:
    """Return the folder of the kernel with this version's options, built from that source."""
    key = sha256(f"{configuration_hash()} {source}".encode()).hexdigest()[:16]
    return root / key


def built_kernels(folders: Sequence[Path] | None = None) -> list[VirtualKernel]:
    """Return the kernels in the first folder that has trusted ones with this version's options, the latest one last."""
    for folder in searched_caches(_NAME) if folders is None else folders:
        if found := [kernel for kernel in _kernels_in(folder) if trusted(kernel.program)]:
            return sorted(found, key=lambda kernel: _version(kernel.record.release))
    return []


def _kernels_in(folder: Path) -> Iterator[VirtualKernel]:
    """Yield the kernels of a folder that have this version's options."""
    for record in folder.glob(f"*/{RECORD}"):
        try:
            kernel = VirtualKernel(record.with_name(PROGRAM), KernelRecord(**json.loads(record.read_text())))
        except (OSError, TypeError, ValueError):
            continue
        if kernel.record.configuration_hash == configuration_hash() and os.access(kernel.program, os.X_OK):
            yield kernel


def virtual_kernel(folders: Sequence[Path] | None = None) -> VirtualKernel:
    """Return the kernel to boot. Raise MissingError if none is built."""
    kernels = built_kernels(folders)
    if not kernels:
        places = " or ".join(map(str, searched_caches(_NAME) if folders is None else folders))
        by_root = "" if sudo_caller() is None else "as root: "
        raise MissingError(f"no virtual-time kernel of this version in {places}: {by_root}{REMEDY}")
    return kernels[-1]


def write_record(folder: Path, record: KernelRecord) -> None:
    """Write the record of the kernel in a folder. Folders without a record are ignored."""
    (folder / RECORD).write_text(json.dumps(asdict(record), indent=2) + "\n")


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in release.partition("-")[0].split("."))
