"""Return a User-Mode Linux kernel that can restore the registers of this processor.

A User-Mode Linux before Linux 6.13 was compiled for 2,696 bytes of extended register state. It reads and restores that
much of each of its processes through ptrace. To read a part is allowed. To write a part is not: on a processor with
more, such as any with AMX, the machine's kernel refuses (EFAULT), the first process inside ends, and with it the guest.

So the size that is written is set in a copy of the kernel, wherever it is written: the only change. The bytes behind
the first 2,696 are those of registers that a process without a permission for AMX never has in use, and its state says
so (XSTATE_BV): the machine's kernel ignores them, whatever they are.
"""

import hashlib
import re
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

from wanbed.ground.files.user_cache import user_cache
from wanbed.testbed.kernel.missing import MissingError
from wanbed.testbed.kernel.user_mode_linux.register_state import register_state_bytes

COMPILED_FOR_BYTES = 2696
_SIZE = struct.Struct("<I")
_SET_REGISTERS = _SIZE.pack(0x4205)
"""PTRACE_SETREGSET, the request that writes."""
_WRITTEN_SIZE = re.compile(
    re.escape(_SIZE.pack(COMPILED_FOR_BYTES)) + rb"(?=.{0,24}?" + re.escape(_SET_REGISTERS) + rb")", re.DOTALL
)
"""The size as the operand of an instruction, shortly before the request becomes one."""


def fitted_kernel(kernel: Path) -> Path:
    """Return ``kernel``, or if it cannot restore this processor's registers a copy in the user's cache that can.

    A kernel that has no such size asks the machine for it, and is returned as it is. Raise MissingError if the cache
    cannot be written.
    """
    size = register_state_bytes()
    if size is None or size <= COMPILED_FOR_BYTES:
        return kernel
    image = kernel.read_bytes()
    fitted = with_written_size(image, size)
    if fitted is None:
        return kernel
    name = hashlib.sha256(fitted).hexdigest()[:16]
    copy = user_cache("user-mode-linux") / name / kernel.name
    if not copy.is_file():
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            # Several processes may make it at the same time: each in a folder of its own, and any may be the last.
            with TemporaryDirectory(dir=copy.parent) as work:
                made = Path(work) / kernel.name
                made.write_bytes(fitted)
                made.chmod(0o755)
                made.replace(copy)
        except OSError as fault:
            raise MissingError(
                f"{copy}: {fault.strerror}: name a folder that can be written in XDG_CACHE_HOME"
            ) from None
    return copy


def with_written_size(image: bytes, size: int) -> bytes | None:
    """Return a kernel's program that writes ``size`` bytes of register state, None if it has no place for the size.

    A compiler may have made one place of it, or one for each function that writes.
    """
    fitted, places = _WRITTEN_SIZE.subn(lambda _: _SIZE.pack(size), image)
    return fitted if places else None
