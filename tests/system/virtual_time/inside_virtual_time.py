"""Python modules that run inside the kernel of virtual time."""

import io
import os
import sys
from pathlib import Path

import pytest

from wanbed.ground.errors import MissingError
from wanbed.testbed.virtual_time.guest import run_inside
from wanbed.testbed.virtual_time.guest_boot import GuestCommand
from wanbed.testbed.virtual_time.guest_place import choose_place
from wanbed.testbed.virtual_time.kernel_cache import VirtualKernel, virtual_kernel

ROOT = Path(__file__).resolve().parents[3]


def kernel_or_skip() -> VirtualKernel:
    """The kernel of virtual time; without one the test is skipped with that reason."""
    try:
        return virtual_kernel()
    except MissingError as missing:
        pytest.skip(str(missing))


def printed_inside(module: str, kernel: VirtualKernel, *arguments: str) -> str:
    """What the module prints, run as a program inside that kernel."""
    said, complained = io.BytesIO(), io.BytesIO()
    status = run_inside(
        GuestCommand([sys.executable, "-m", module, *arguments], ROOT, {**os.environ, "PYTHONPATH": str(ROOT)}),
        kernel,
        choose_place(),
        standard_output=said,
        standard_error=complained,
    )
    assert status == 0, complained.getvalue().decode() + said.getvalue().decode()
    return said.getvalue().decode()
