"""End a rank whose training has failed, with one line, and at once."""

import os
import sys
import threading
from typing import NoReturn

_lock = threading.Lock()


def die(line: str) -> NoReturn:
    """Print ``line`` on standard error and end this process with status 1, whatever its other threads wait for.

    Any thread may call it; the first one speaks for the process. Nothing is shut down in order: a process group waits
    for its peers, and one of them is lost. The kernel closes the connections, which tells the others.
    """
    _lock.acquire()
    print(line, file=sys.stderr, flush=True)
    os._exit(1)
