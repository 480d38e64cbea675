"""Find out whose program is at the other end of a connection on this machine's loopback. No privilege is needed.

Every user may bind every address of the loopback. So the address of a caller says nothing there, and the kernel does.
"""

import os
import socket
import struct
from contextlib import suppress

from wanbed.ground.tcp_listener import socket_entry, user_text

_LISTEN = 10
_ALL_STATES = 0xFFFFFFFF
_LOOPBACK = "127."
_STATE_OFFSET, _UID_OFFSET = 1, 64
_ROOT = 0


def foreign_caller(connection: socket.socket) -> str | None:
    """Return the user who has called, as messages show it, if that is another one than this process's.

    Return None for an own caller, for one that is on no loopback or has gone, and if the kernel does not say.
    """
    # Whoever has gone has no peer, or no user any more.
    with suppress(OSError):
        caller, called = connection.getpeername(), connection.getsockname()
        if not caller[0].startswith(_LOOPBACK):
            return None
        found = socket_entry(caller, called, _ALL_STATES)
        # What has been closed shows as root's. Root needs no socket to do harm.
        if found is not None and found[_STATE_OFFSET] != _LISTEN:
            (uid,) = struct.unpack_from("=I", found, _UID_OFFSET)
            return None if uid in {_ROOT, os.geteuid()} else user_text(uid)
    return None


def accept_own(listener: socket.socket) -> socket.socket:
    """Accept the next connection whose caller is no other user's program, and close those before it.

    Raise OSError as ``accept`` does.
    """
    while True:
        made, _ = listener.accept()
        if foreign_caller(made) is None:
            return made
        made.close()
