"""Drive a frame channel from a selector. The data of each of its keys is a function of the event mask."""

import selectors
from collections.abc import Callable, Iterable

from wanbed.workloads.serving.frame_channel import Document, FrameChannel, Payload
from wanbed.workloads.transport.frames.frame import FrameError


def dispatch(selector: selectors.BaseSelector, timeout_s: float | None) -> None:
    """Wait for the selector, and call the function of every key that is ready.

    A key that an earlier function of the same round has unregistered is left out.
    """
    for key, mask in selector.select(timeout_s):
        # Looked up by descriptor: a socket that has been closed meanwhile has none any more, which is an error.
        current = selector.get_map().get(key.fd)
        if current is not None and current.fileobj is key.fileobj:
            key.data(mask)


class PeerChannel:
    """Reads and writes a channel as far as possible, whenever the selector reports it as ready.

    ``handle`` is called with each received document. ``gone`` is called once, with the reason, when the connection has
    ended; documents sent after that are dropped. ``here`` is true until then.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        channel: FrameChannel,
        handle: Callable[[Document], None],
        gone: Callable[[str], None],
    ) -> None:
        self.channel = channel
        self.here = True
        self._selector = selector
        self._handle = handle
        self._gone = gone
        self._mask = selectors.EVENT_READ
        selector.register(channel, self._mask, self._ready)
        self._write()

    def send(self, document: Document, payload: Payload = 0) -> None:
        """Send a frame: at once as far as the kernel accepts it, the rest when the selector reports the channel."""
        if self.here:
            self.channel.send(document, payload)
            self._write()

    def handle_all(self, documents: Iterable[Document]) -> None:
        """Handle documents that arrived before this object was created."""
        for document in documents:
            self._handle(document)

    def close(self) -> None:
        """Close the connection without calling ``gone``."""
        if self.here:
            self.here = False
            self._selector.unregister(self.channel)
            self.channel.close()

    def _ready(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._write()
        if self.here and mask & selectors.EVENT_READ:
            try:
                documents = self.channel.receive()
            except (OSError, FrameError) as fault:
                self._end(str(fault))
                return
            self.handle_all(documents)

    def _write(self) -> None:
        try:
            self.channel.flush()
        except OSError as fault:
            self._end(str(fault))
            return
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.channel.unsent else 0)
        if mask != self._mask:
            self._mask = mask
            self._selector.modify(self.channel, mask, self._ready)

    def _end(self, why: str) -> None:
        self.close()
        self._gone(why)
