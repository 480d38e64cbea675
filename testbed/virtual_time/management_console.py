"""Send commands to the management console of a guest's kernel, a socket that the kernel itself answers.

It answers regardless of the processes inside. Protocol version 2 (Linux: arch/um/drivers/mconsole.h): datagrams of a
header and text. An answer takes several datagrams; all but the last have a flag for more.
"""

import socket
import struct
import time
from pathlib import Path

_REQUEST = struct.Struct("=III512s")
_ANSWER = struct.Struct("=III")
_MAGIC, _VERSION = 0xCAFEBABE, 2

REGISTERS, CONTROL_ALT_DELETE = "sysrq p", "cad"
"""Commands: report the running process; send SIGINT to the first process.

``sysrq t``, which would report all processes, crashes User-Mode Linux 6.1.
"""


def send_command(console: Path, text: str, patience_s: float) -> str | None:
    """Send a command and return the answer, None if none comes in ``patience_s`` or the kernel is gone."""
    deadline = time.monotonic() + patience_s
    lines = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as ours:
        try:
            # The answer goes to a name that the kernel assigns here.
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
