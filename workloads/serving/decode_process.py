"""A host that receives KV caches: ``python -m wanbed.workloads.serving.decode_process CONFIG.json``.

The process reports each request whose whole KV cache has arrived to the controller. If the caches are real, it then
decodes as many tokens as the controller's answer says. It ends when the controller has closed its connection, or on
SIGTERM. It then writes its counts and the decoded tokens and exits with status 0. On a failure it exits with status 1
and one line on standard error.
"""

import json
import os
import selectors
import signal
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wanbed.ground.dataclass_json import read_config
from wanbed.workloads.host_process import die_with_parent, print_line, run_configured
from wanbed.workloads.serving.frame_channel import (
    PAYLOAD,
    SHUTDOWN,
    Document,
    FrameChannel,
    PeerChannel,
    dispatch,
    send_last,
)
from wanbed.workloads.serving.rendezvous import Listener, ServingError, call, send_hello
from wanbed.workloads.serving.serving_configs import DecodeConfig
from wanbed.workloads.transport.peer import TransportError

if TYPE_CHECKING:
    from wanbed.workloads.inference.decode import SequenceDecoder

_NAME = "wanbed decode host"
_print = partial(print_line, _NAME)


@dataclass(slots=True)
class _Cache:
    """The parts of a request's cache that have arrived. ``parts`` is their total number, None while unknown."""

    arrived: int = 0
    parts: int | None = None


class DecodeProcess:
    """The process of a decode host. It listens once its model is built. Construct it, then call ``run``."""

    def __init__(self, config: DecodeConfig) -> None:
        self._config = config
        # Before it listens: what arrives is not read until the model is built, and senders give up after seconds.
        self._decoder = _decoder(config)
        self._selector = selectors.DefaultSelector()
        self._news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._news, selectors.EVENT_READ, lambda mask: None)
        keeps = config.inference is not None
        self._listener = Listener(
            config.listen,
            config.run_token,
            self._selector,
            self._accept,
            _print,
            keeps_payloads=keeps,
        )
        self._senders: list[PeerChannel] = []
        self._caches: dict[int, _Cache] = {}
        self._complete_requests = 0
        self._ending = False
        self._controller: PeerChannel | None = None

    def end(self) -> None:
        """Make ``run`` return. Safe to call from a signal handler."""
        self._ending = True
        os.eventfd_write(self._news, 1)

    def run(self) -> None:
        """Receive until the end, then write the counts. Raises ServingError if the controller cannot be reached."""
        config = self._config
        hello = send_hello(config.run_token, None)
        channel = call(
            config.listen.address, config.controller, hello, config.rendezvous_timeout_ns, lambda: self._ending
        )
        self._controller = PeerChannel(self._selector, channel, self._handle_command, lambda why: self.end())
        decoder = self._decoder
        while not self._ending:
            dispatch(self._selector, 0 if decoder is not None and decoder.busy else None)
            if decoder is not None:
                decoder.step()
        self._listener.close()
        for sender in self._senders:
            sender.send(SHUTDOWN)
        send_last(self._selector, self._senders)
        received_bytes = sum(sender.channel.received_bytes for sender in self._senders)
        counts = {
            "kv_bytes": received_bytes,
            "requests": self._complete_requests,
            "in_part": len(self._caches),
            "tokens": {} if decoder is None else decoder.tokens,
        }
        Path(config.counts).write_text(json.dumps(counts), encoding="utf-8")
        # A SIGTERM may still arrive while the process exits.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _accept(self, channel: FrameChannel, gpu: int | None, documents: list[Document]) -> None:
        sender = PeerChannel(self._selector, channel, self._handle_cache_part, lambda why: None)
        self._senders.append(sender)
        sender.handle_all(documents)

    def _handle_cache_part(self, document: Document) -> None:
        assert self._controller is not None
        request = document["request"]
        cache = self._caches.setdefault(request, _Cache())
        cache.arrived += 1
        if self._decoder is not None:
            layers, first_token = range(*document["layers"]), document["first_token"]
            self._decoder.add_cache_part(request, layers, document["chunk"], document[PAYLOAD], first_token)
        if document["last"]:
            cache.parts = document["stages"] * (document["chunk"] + 1)
        if cache.arrived == cache.parts:
            del self._caches[request]
            self._complete_requests += 1
            self._controller.send({"message": "CacheMoved", "request": request})

    def _handle_command(self, document: Document) -> None:
        if self._decoder is not None and document["message"] == "Continue":
            self._decoder.begin(document["request"], document["tokens"])


def _decoder(config: DecodeConfig) -> "SequenceDecoder | None":
    if config.inference is None:
        return None
    # Import torch only if it is needed, so that a host that only receives starts faster.
    from wanbed.workloads.inference.decode import SequenceDecoder  # noqa: PLC0415

    return SequenceDecoder(config.inference)


def _run_decode_host(config: DecodeConfig) -> None:
    """Run the decode host until it is told to end."""
    if config.parent_pid is not None:
        die_with_parent(config.parent_pid)
    process = DecodeProcess(config)
    signal.signal(signal.SIGTERM, lambda number, frame: process.end())
    process.run()


def main(arguments: list[str]) -> int:
    """Run the decode host whose configuration file is named on the command line. Return the exit status."""
    return run_configured(
        arguments,
        module="wanbed.workloads.serving.decode_process",
        name=_NAME,
        read=partial(read_config, DecodeConfig),
        run=_run_decode_host,
        faults=(
            ServingError,
            TransportError,
        ),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
