"""Connect the processes of a prefill service. A caller first sends a hello with the trial's token."""

import errno
import hmac
import os
import selectors
import time
from collections.abc import Callable

from wanbed.ground.socket_owner import foreign_caller
from wanbed.workloads.serving.frame_channel import Document, FrameChannel
from wanbed.workloads.serving.serving_configs import Endpoint
from wanbed.workloads.transport.frame import FrameError
from wanbed.workloads.transport.socket_options import make_socket, peer_listens

_RETRY_S = 0.1
_BACKLOG = 128
_MOST_SILENT = 512
"""Callers that may be connected before their hello. Each holds a descriptor, and a buffer."""


class ServingError(Exception):
    """A process of the service cannot continue. The message is one line."""


def send_hello(token: str, gpu: int | None) -> Document:
    """Return the hello, the first message of a caller. ``gpu`` is None for a decode host."""
    return {"message": "Hello", "token": token, "gpu": gpu}


def call(
    own_address: str,
    peer: Endpoint,
    hello: Document,
    timeout_ns: int,
    given_up: Callable[[], bool] = lambda: False,
) -> FrameChannel:
    """Connect to ``peer``, retrying while it does not listen yet. Return a channel with the hello queued.

    Raises ServingError if there is no connection within ``timeout_ns``, or once ``given_up`` returns true.
    """
    deadline_ns = time.monotonic_ns() + timeout_ns
    while True:
        made = make_socket(own_address, 0)
        try:
            made.settimeout(1.0)
            if not peer_listens(peer.address, peer.port):
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            made.connect((peer.address, peer.port))
        except OSError as fault:
            made.close()
            refused = fault.errno in {errno.ECONNREFUSED, errno.ETIMEDOUT, None}
            if not refused or given_up() or time.monotonic_ns() >= deadline_ns:
                raise ServingError(f"no connection to {peer.host} port {peer.port}: {fault}") from None
            time.sleep(_RETRY_S)
            continue
        channel = FrameChannel(made)
        channel.send(hello)
        return channel


class Listener:
    """Accepts channels of callers that know the token, on a shared selector.

    ``arrived`` is called for each channel after its hello, with the GPU's number (None for a decode host) and the
    documents that followed the hello. A caller that sends anything else is dropped, and ``log`` is called with one
    line. The data of the selector's keys are functions of the event mask. ``keeps_payloads`` applies to all channels.
    """

    def __init__(
        self,
        own: Endpoint,
        token: str,
        selector: selectors.BaseSelector,
        arrived: Callable[[FrameChannel, int | None, list[Document]], None],
        log: Callable[[str], None],
        *,
        keeps_payloads: bool = False,
    ) -> None:
        self._keeps_payloads = keeps_payloads
        self._token = token
        self._selector = selector
        self._arrived = arrived
        self._log = log
        self._silent: dict[FrameChannel, str] = {}
        self._socket = make_socket(own.address, own.port)
        self._socket.listen(_BACKLOG)
        selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Stop listening."""
        self._selector.unregister(self._socket)
        self._socket.close()

    def _accept(self, _mask: int) -> None:
        try:
            made, (address, _) = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        if (user := foreign_caller(made)) is not None:
            made.close()
            self._log(f"dropped the client {address}: it is a program of {user}")
            return
        if len(self._silent) == _MOST_SILENT:
            self._drop(next(iter(self._silent)), f"it has said nothing, like {_MOST_SILENT - 1} after it")
        channel = FrameChannel(made, keeps_payloads=self._keeps_payloads)
        self._silent[channel] = str(address)
        self._selector.register(channel, selectors.EVENT_READ, lambda mask: self._receive_hello(channel))

    def _receive_hello(self, channel: FrameChannel) -> None:
        if channel not in self._silent:
            # It was dropped for another one after it had become readable.
            return
        try:
            documents = channel.receive()
            if not documents:
                return
            hello, *documents = documents
            if hello.get("message") != "Hello" or not isinstance(hello.get("token"), str):
                raise FrameError("its first message is not a hello")
            # Half a surrogate pair, as an escape, is JSON and no text.
            if not hmac.compare_digest(hello["token"].encode(errors="replace"), self._token.encode()):
                raise FrameError("it belongs to another run")
        except (OSError, FrameError) as fault:
            self._drop(channel, str(fault))
            return
        del self._silent[channel]
        self._selector.unregister(channel)
        self._arrived(channel, hello.get("gpu"), documents)

    def _drop(self, channel: FrameChannel, fault: str) -> None:
        address = self._silent.pop(channel)
        self._selector.unregister(channel)
        channel.close()
        self._log(f"dropped the client {address}: {fault}")
