"""End a failed rank at once, with one line on stderr."""

import os
import sys
import threading
from typing import NoReturn

_lock = threading.Lock()


def die(line: str) -> NoReturn:
    """Print ``line`` on stderr and end this process with status 1, even if other threads wait.

    Any thread may call it; only the first call prints. The process group is not shut down in order, because that would
    wait for a peer that may be lost. The kernel closes the connections, so that the other ranks notice.
    """
    _lock.acquire()
    print(line, file=sys.stderr, flush=True)
    os._exit(1)
