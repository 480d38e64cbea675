"""The clock ``virtual``: run what uses it inside a guest kernel, from its first process on."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from ground.strict_model import InputError
from runner.experiment.model import ExperimentSpec
from testbed.kernel.inside import in_virtual_time
from testbed.virtual_time.guest import run_inside
from testbed.virtual_time.guest_boot import check_visible
from testbed.virtual_time.guest_place import GuestPlace, choose_place, raise_map_count
from testbed.virtual_time.kernel.kernel_cache import VirtualKernel
from testbed.virtual_time.watchdog import PATIENT, Patience
from wanbed.own_modules import module_command

COMMAND = "wanbed"


def wants_guest(spec: ExperimentSpec, substrate: str) -> bool:
    """Return whether what an experiment asks for must enter virtual time first; False inside, and on the real clock.

    Raises InputError for a substrate that virtual time does not have.
    """
    if spec.clock != "virtual":
        return False
    if substrate == "guest":
        raise InputError("--substrate guest: in virtual time links are the kernel's own: leave it out, or --clock real")
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
    patience: Patience = PATIENT,
    sign: Callable[[], object] | None = None,
) -> int:
    """Run one of this project's modules inside a guest, with this process's folder and environment; return its status.

    ``files`` are those that it shall find there; ``place`` is chosen unless given. Raises InputError for a file that a
    guest does not see, MissingError where the machine has no place for a guest, and what ``run_inside`` does, which
    gets ``standard_error``, ``patience`` and ``sign``. The status is the module's exit status.
    """
    check_visible(Path.cwd(), "the current folder")
    for file in files:
        check_visible(file, str(file))
    place = place or choose_place()
    raise_map_count()
    sys.stdout.flush()
    return run_inside(
        module_command(module, *arguments),
        kernel,
        place,
        standard_input=standard_input,
        standard_error=standard_error,
        patience=patience,
        sign=sign,
    )
