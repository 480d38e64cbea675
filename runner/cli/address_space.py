"""Live with a limit on the address space (``ulimit -v``), before the libraries are loaded that reserve a lot of it."""

import os
import resource

from wanbed.testbed.kernel.missing import MissingError

_LEAST_BYTES = 800_000 * 1024
_FRUGAL = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}
"""Arrow's own pool reserves a GiB, and OpenBLAS a buffer for each core."""


def fit_address_space() -> None:
    """Do nothing where no limit is set. Raise MissingError if it is too low for any command."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit_bytes == resource.RLIM_INFINITY:
        return
    if limit_bytes < _LEAST_BYTES:
        raise MissingError(
            f"wanbed takes {_LEAST_BYTES >> 10} KiB of address space, ulimit -v allows {limit_bytes >> 10}: raise it"
        )
    for name, value in _FRUGAL.items():
        os.environ.setdefault(name, value)
