"""Open the store where processes of torch's meet: a TCPStore that listens on one address alone."""

import socket
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]


def open_store(address: str, port: int, *, members: int, keeps_it: bool, timeout: timedelta) -> TCPStore:
    """Open the store that one of its ``members`` keeps there: this one, or whoever answers within ``timeout``.

    Raises OSError where the address cannot be had, RuntimeError where nobody answers.
    """
    if not keeps_it:
        return TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=timeout)
    # TCPStore itself would listen on every address of the host.
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
        except OSError as fault:
            raise OSError(f"{address} port {port}, to keep the store at: {fault.strerror}") from None
        listener.listen(members)
        descriptor = listener.detach()
    return TCPStore(address, port, is_master=True, wait_for_workers=False, timeout=timeout, master_listen_fd=descriptor)
