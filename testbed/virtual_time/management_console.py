"""Use the management console of a guest's kernel: a socket on which the kernel itself answers.

It answers whatever its processes do. Protocol version 2 (Linux: arch/um/drivers/mconsole.h): datagrams of a header and
text; an answer comes in several, all but the last of which are marked.
"""

import socket
import struct
import time
from pathlib import Path

_REQUEST = struct.Struct("=III512s")
_ANSWER = struct.Struct("=III")
_MAGIC, _VERSION = 0xCAFEBABE, 2

REGISTERS, CONTROL_ALT_DELETE = "sysrq p", "cad"
"""Orders: tell which process is at the processor; interrupt the first process.

``sysrq t``, which would tell of every process, kills a User-Mode Linux of version 6.1.
"""


def order(console: Path, text: str, patience_s: float) -> str | None:
    """Give an order and return the answer, None if none comes or no kernel is there any more."""
    deadline = time.monotonic() + patience_s
    lines = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as ours:
        try:
            # A name of its own, which the kernel picks, is where the answer goes.
            ours.bind("")
            ours.sendto(_REQUEST.pack(_MAGIC, _VERSION, len(text), text.encode()), str(console))
            while True:
                ours.settimeout(max(0.001, deadline - time.monotonic()))
                answer = ours.recv(4096)
                _, more, length = _ANSWER.unpack_from(answer)
                lines.append(answer[_ANSWER.size : _ANSWER.size + length].rstrip(b"\0").decode(errors="replace"))
                if not more:
                    return "".join(lines)
        except OSError:
            return None
