"""One TCP connection to a peer, with the progress of the frame that it sends and of the frame that it receives.

All calls come from the I/O thread, and none blocks.
"""

import socket

from wanbed.workloads.transport.frames.blank_bytes import send_blank
from wanbed.workloads.transport.frames.frame import HEADER_BYTES, FrameHeader, decode_header


class Connection:
    """A connected, non-blocking socket. Payloads are sent from and received into their owner's memory, without a copy.

    ``blank`` payloads have a length but no contents: zeros are sent, received bytes are discarded, and the owner's
    memory is never touched. ``last_begun`` is the sequence number, on the link, of the last chunk that this connection
    began.
    """

    def __init__(self, connected: socket.socket, *, blank: bool) -> None:
        self.socket = connected
        self.shutdowns_sent = 0
        self.last_begun = 0
        self.chunks_received = 0
        self.last_own_received = False
        self.shutdown_received = False
        self._blank = blank
        self._discard = socket.MSG_TRUNC if blank else 0
        self._low_water = 1
        self._header_unsent = memoryview(b"")
        self._payload_unsent = memoryview(b"")
        self._header = bytearray(HEADER_BYTES)
        self._header_missing = memoryview(self._header)

    @property
    def sending(self) -> bool:
        """Whether the kernel has not yet accepted all of the current frame."""
        return bool(self._header_unsent or self._payload_unsent)

    def begin_frame(self, header: FrameHeader, payload: memoryview) -> bool:
        """Offer a frame to the kernel; ``push`` offers the rest. The frame before it must have been accepted.

        Return False, and begin nothing, if the kernel accepts no byte now. Raise OSError if the connection has failed.
        """
        encoded = memoryview(header.encode())
        self._header_unsent, self._payload_unsent = encoded, payload
        self.push()
        if self._header_unsent is not encoded:
            return True
        self._header_unsent = self._payload_unsent = encoded[:0]
        return False

    def push(self) -> None:
        """Offer the rest of the frame to the kernel. Raise OSError if the connection has failed."""
        try:
            if self._blank:
                self._push_blank()
            elif self._header_unsent:
                self._count_accepted(self.socket.sendmsg((self._header_unsent, self._payload_unsent)))
            else:
                self._count_accepted(self.socket.send(self._payload_unsent))
        except BlockingIOError:
            pass

    def _push_blank(self) -> None:
        if self._header_unsent:
            self._count_accepted(self.socket.send(self._header_unsent, socket.MSG_MORE if self._payload_unsent else 0))
        if self._payload_unsent and not self._header_unsent:
            self._count_accepted(send_blank(self.socket, self._payload_unsent.nbytes))

    def _count_accepted(self, accepted: int) -> None:
        of_header = min(accepted, len(self._header_unsent))
        if of_header:
            self._header_unsent = self._header_unsent[of_header:]
        self._payload_unsent = self._payload_unsent[accepted - of_header :]

    def read_header(self) -> FrameHeader | None:
        """Return the next frame's header, None until all of it has been received.

        Raise FrameError if it is not valid, EOFError if the peer has closed, OSError if the connection has failed.
        """
        read = self._receive(self._header_missing, 0)
        if read != len(self._header_missing):
            self._header_missing = self._header_missing[read:]
            return None
        self._header_missing = memoryview(self._header)
        return decode_header(self._header)

    def read_payload(self, missing: memoryview) -> int:
        """Read at most ``missing.nbytes`` bytes into ``missing``, or discard them if blank. Return how many, maybe 0.

        Raise EOFError if the peer has closed, OSError if the connection has failed.
        """
        return self._receive(missing, self._discard)

    def wake_at(self, unread_bytes: int) -> None:
        """Report the socket as readable only with at least ``unread_bytes`` to read, or when the peer has closed."""
        if unread_bytes != self._low_water:
            self._low_water = unread_bytes
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, unread_bytes)

    @property
    def wakes_at(self) -> int:
        """The number of unread bytes from which on the socket is readable."""
        return self._low_water

    def _receive(self, missing: memoryview, flags: int) -> int:
        try:
            read = self.socket.recv_into(missing, 0, flags)
        except BlockingIOError:
            return 0
        if read == 0:
            raise EOFError
        return read
