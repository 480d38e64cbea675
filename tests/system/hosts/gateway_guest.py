"""Programs that run inside the kernel of a gateway guest, which has netem where this machine's kernel may lack it.

The guest's root is this machine's file system; ``/proc``, ``/sys``, ``/run`` and ``/dev`` are its own. It has one
processor, and its clock is the real one.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from wanbed.testbed.kernel.user_mode_linux import fitted_kernel
from wanbed.testbed.substrate.guest_kernel import GUEST_PROGRAM, MODULES, MODULES_ROOT

MEMORY = "2G"
DESCRIPTORS = 1024
"""Mininet closes as many as there may be for each host that it starts, which are system calls; here they take long."""
BOOT_S = 30


def run_in_gateway_guest(argv: Sequence[str], folder: Path, *, start_in: Path, limit_s: int) -> str:
    """Return all that a program printed, interrupted after a limit of time; where it printed nothing, the kernel's log.

    Everything inside ends with the guest, and the guest within half a minute of the limit. ``folder`` takes its files.
    """
    output, log = folder / "output", folder / "kernel.log"
    init = folder / "init"
    init.write_text(
        "\n".join(
            [
                "#!/bin/sh",
                "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/dev/shm",
                "mount -t proc proc /proc",
                "mount -t sysfs sysfs /sys",
                "mount -t tmpfs -o mode=755 tmpfs /run",
                "mkdir -p /dev/pts /dev/shm",
                "mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts",
                "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
                "ln -s /proc/self/fd /dev/fd",
                f"for module in {' '.join(MODULES)}; do",
                f'  insmod "{MODULES_ROOT}/$(uname -r)/kernel/$module"',
                "done",
                "ip link set lo up",
                f"ulimit -n {DESCRIPTORS}",
                f"cd {shlex.quote(str(start_in))}",
                f"export PYTHONPATH={shlex.quote(str(start_in))} PYTHONDONTWRITEBYTECODE=1",
                f"timeout --signal=INT --kill-after=10 {limit_s} {shlex.join(argv)} > {shlex.quote(str(output))} 2>&1",
                "sync",
                "halt -f",
                "",
            ]
        )
    )
    init.chmod(0o755)
    program = fitted_kernel(Path(shutil.which(GUEST_PROGRAM) or GUEST_PROGRAM))
    kernel = [str(program), "rootfstype=hostfs", "rootflags=/", "rw", f"mem={MEMORY}", f"init={init}", "quiet"]
    consoles = ["con=null", "con0=null,fd:1", f"uml_dir={folder}", "umid=guest"]
    # As process 1 of its namespace the kernel would miss signals, hence the shell.
    first = ["sh", "-c", '"$@"; true', "guest", *kernel, *consoles]
    with log.open("wb") as kernel_log, suppress(subprocess.TimeoutExpired):
        subprocess.run(
            ["nice", "--adjustment=-20", "unshare", "--pid", "--fork", "--kill-child", *first],
            stdin=subprocess.DEVNULL,
            stdout=kernel_log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": "/dev/shm"},
            timeout=BOOT_S + limit_s,
            check=False,
        )
    return (output if output.exists() else log).read_text(errors="replace")
