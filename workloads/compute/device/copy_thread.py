"""Hand messages to the transport once they have been copied from a GPU, while the rank continues to compute."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from wanbed.workloads.message import Message

Fetch = Callable[[Message], memoryview]
Send = Callable[[int, Message, memoryview], None]


class CopyThread:
    """A thread that calls ``fetch``, which waits for the copy, and then ``send``, for each message in order.

    If either raises, the error is passed to ``report``, and nothing more is sent.
    """

    def __init__(self, fetch: Fetch, send: Send, report: Callable[[Exception], None]) -> None:
        self._fetch = fetch
        self._send = send
        self._report = report
        self._messages: SimpleQueue[tuple[int, Message] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="copy thread", daemon=True)
        self._thread.start()

    def send(self, iteration: int, message: Message) -> None:
        """Queue a message whose copy has begun."""
        self._messages.put((iteration, message))

    def close(self) -> None:
        """Send the queued messages and end the thread. May be called again."""
        self._messages.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (entry := self._messages.get()) is not None:
            iteration, message = entry
            try:
                self._send(iteration, message, self._fetch(message))
            except Exception as fault:
                # No other code sees an error of this thread, and the rank would wait for the message for ever.
                self._report(fault)
                return
