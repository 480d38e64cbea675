"""Hand messages to the transport once they have been copied from a GPU, while the rank computes on."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from workloads.message import Message

Fetch = Callable[[Message], memoryview]
Send = Callable[[int, Message, memoryview], None]


class CopyThread:
    """A thread that calls ``fetch``, which waits for the copy, and then ``send``, message by message in their order.

    What either raises goes to ``report``, and nothing is sent after it.
    """

    def __init__(self, fetch: Fetch, send: Send, report: Callable[[Exception], None]) -> None:
        self._fetch = fetch
        self._send = send
        self._report = report
        self._messages: SimpleQueue[tuple[int, Message] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="courier", daemon=True)
        self._thread.start()

    def send(self, iteration: int, message: Message) -> None:
        """Queue a message whose copy has begun."""
        self._messages.put((iteration, message))

    def close(self) -> None:
        """Send what is queued and end. May be called again."""
        self._messages.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (entry := self._messages.get()) is not None:
            iteration, message = entry
            try:
                self._send(iteration, message, self._fetch(message))
            except Exception as fault:
                # Nobody looks at this thread, and the rank would wait for ever for the message to be sent.
                self._report(fault)
                return
