"""Run a program that starts others, and leave none of them, however this program or the one that started it ends.

As a program: ``warden FOLDER PROGRAM...``. It is told to end by the end of its standard input, which the kernel closes
with the process that started it. It adopts what the program's children leave behind, kills all of it, and removes the
folder.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress

from tests.support.testbed.processes import descendants
from wanbed.workloads.user_programs.program_watch import adopt_descendants


def main(folder: str, program: list[str]) -> None:
    """Run the program until standard input ends."""
    adopt_descendants()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    subprocess.Popen(program, stdin=subprocess.DEVNULL, start_new_session=True, restore_signals=True)
    sys.stdin.buffer.read()
    while left := descendants(os.getpid()):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
