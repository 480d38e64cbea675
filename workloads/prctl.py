"""Ask the kernel to treat the calling process or thread in another way."""

import ctypes


def prctl(option: int, value: int, name: str) -> None:
    """Set one option of this process or thread. Raise OSError, with the name of the option, if the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({name})")
