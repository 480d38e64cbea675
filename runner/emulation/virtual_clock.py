"""Run commands with ``clock: virtual`` inside a virtual-time guest, from their first process on."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.module_process import module_command
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.testbed.kernel.inside import in_virtual_time
from wanbed.testbed.kernel.open_files import allow_open_files
from wanbed.testbed.substrate.offer import GUEST, RELAY
from wanbed.testbed.virtual_time.guest import GuestError, run_inside
from wanbed.testbed.virtual_time.guest_boot import GuestCommand, check_visible
from wanbed.testbed.virtual_time.guest_place import (
    LEAST_OPEN_FILES,
    OPEN_FILES,
    GuestPlace,
    choose_place,
    raise_map_count,
)
from wanbed.testbed.virtual_time.kernel_cache import VirtualKernel
from wanbed.testbed.virtual_time.watchdog import PATIENT, Watch

COMMAND = "wanbed"

_BY_SIGNAL = 128


def wants_guest(spec: ExperimentSpec, substrate: str) -> bool:
    """Return whether an experiment must enter virtual time: its clock is virtual and that of this process is not.

    Raise InputError for a substrate that virtual time does not have.
    """
    if spec.clock != "virtual":
        return False
    check_exclusions(
        Exclusion(
            f"--substrate {substrate}",
            "in virtual time links are the kernel's own",
            "give --clock real",
            when=substrate in {GUEST, RELAY},
            leave="--substrate",
        )
    )
    return not in_virtual_time()


def enter_virtual_time(
    kernel: VirtualKernel,
    module: str,
    arguments: Sequence[str],
    *,
    files: Sequence[Path],
    standard_input: bytes | None = None,
    standard_error: BinaryIO | None = None,
    place: GuestPlace | None = None,
    watch: Watch = PATIENT,
) -> int:
    """Run one of this project's modules inside a virtual-time guest, and return its exit status.

    It has the current folder and environment of this process. ``files`` must be visible inside the guest. ``place`` is
    chosen automatically if None. ``standard_input``, ``standard_error`` and ``watch`` are passed to
    ``run_inside``. Raise InputError for a file that the guest cannot see, MissingError if the machine has no place for
    a guest, and the errors of ``run_inside``.
    """
    check_visible(Path.cwd(), "the current folder")
    for file in files:
        check_visible(file, str(file))
    place = place or choose_place()
    raise_map_count()
    allow_open_files("virtual time", OPEN_FILES, LEAST_OPEN_FILES)
    sys.stdout.flush()
    return run_inside(
        GuestCommand(module_command(module, *arguments), standard_input=standard_input),
        kernel,
        place,
        standard_error=standard_error,
        watch=watch,
    )


def status_of_inner(status: int) -> int:
    """Return the exit status of a command of wanbed that ran inside, as that of this command.

    Raise GuestError if a signal ended it. Nothing outside sends it one but whoever means this run.
    """
    if status > _BY_SIGNAL:
        raise GuestError(f"virtual time: the command inside was killed by signal {status - _BY_SIGNAL}")
    return status
