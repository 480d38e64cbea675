"""Open the TCPStore for the rendezvous of torch processes, listening on one address only."""

import socket
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]


def open_store(address: str, port: int, *, members: int, is_server: bool, timeout: timedelta) -> TCPStore:
    """Open the store at that address, as its server or as a client of it. ``members`` bounds the listen queue.

    Raise OSError if the server cannot bind the address, RuntimeError if no server answers within ``timeout``.
    """
    if not is_server:
        return TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=timeout)
    # TCPStore itself would listen on every address of the host.
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
        except OSError as fault:
            raise OSError(f"cannot serve the store at {address} port {port}: {fault.strerror}") from None
        listener.listen(members)
        descriptor = listener.detach()
    return TCPStore(address, port, is_master=True, wait_for_workers=False, timeout=timeout, master_listen_fd=descriptor)
