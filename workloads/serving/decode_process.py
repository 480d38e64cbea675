"""A host that receives KV caches: ``python -m workloads.serving.decode_process PLAN.json``.

It reports each request whose whole cache is here to the controller. Where the caches are real, it continues the
sequence for as many tokens as the controller answers. It ends when the controller has gone, or on SIGTERM, and then
writes how much came, and the tokens. Exit status 0 then; else 1 and one line on standard error.
"""

import json
import os
import selectors
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workloads.parent_process import die_with_parent
from workloads.plan_file import read_plan
from workloads.serving.frame_channel import PAYLOAD, Document, FrameChannel
from workloads.serving.peer_channel import PeerChannel
from workloads.serving.rendezvous import Listener, ServingError, call, send_hello
from workloads.serving.serving_configs import DecodeConfig
from workloads.transport.peer import TransportError

if TYPE_CHECKING:
    from workloads.inference.sequence_decoder import SequenceDecoder


@dataclass(slots=True)
class _Cache:
    """The parts of a request's cache that have come; ``parts`` is the number of all, once that is known."""

    came: int = 0
    parts: int | None = None


class DecodeProcess:
    """The process of a decode host. Construct it, then call ``run``."""

    def __init__(self, plan: DecodeConfig) -> None:
        self._plan = plan
        self._selector = selectors.DefaultSelector()
        self._news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._news, selectors.EVENT_READ, lambda mask: None)
        keeps = plan.inference is not None
        self._listener = Listener(plan.listen, plan.run_token, self._selector, self._called, _say, keeps_payloads=keeps)
        self._decoder = _decoder(plan)
        self._senders: list[FrameChannel] = []
        self._caches: dict[int, _Cache] = {}
        self._whole = 0
        self._ending = False
        self._controller: PeerChannel | None = None

    def end(self) -> None:
        """Let ``run`` come to its end. A signal handler may call it too."""
        self._ending = True
        os.eventfd_write(self._news, 1)

    def run(self) -> None:
        """Receive until the end, and write the counts. Raises ServingError if there is no controller."""
        plan = self._plan
        hello = send_hello(plan.run_token, None)
        channel = call(plan.listen.address, plan.controller, hello, plan.rendezvous_timeout_ns, lambda: self._ending)
        self._controller = PeerChannel(self._selector, channel, self._answered, lambda why: self.end())
        decoder = self._decoder
        while not self._ending:
            for key, mask in self._selector.select(0 if decoder is not None and decoder.busy else None):
                if key.fileobj in self._selector.get_map():
                    key.data(mask)
            if decoder is not None:
                decoder.step()
        self._listener.close()
        received_bytes = sum(channel.received_bytes for channel in self._senders)
        counts = {
            "kv_bytes": received_bytes,
            "requests": self._whole,
            "in_part": len(self._caches),
            "tokens": {} if decoder is None else decoder.tokens,
        }
        Path(plan.counts).write_text(json.dumps(counts), encoding="utf-8")
        # It may be told to end while it does.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _called(self, channel: FrameChannel, gpu: int | None, documents: list[Document]) -> None:
        self._senders.append(channel)
        PeerChannel(self._selector, channel, self._came, lambda why: None).handle_all(documents)

    def _came(self, document: Document) -> None:
        assert self._controller is not None
        request = document["request"]
        cache = self._caches.setdefault(request, _Cache())
        cache.came += 1
        if self._decoder is not None:
            layers, first_token = range(*document["layers"]), document["first_token"]
            self._decoder.cache_came(request, layers, document["chunk"], document[PAYLOAD], first_token)
        if document["last"]:
            cache.parts = document["stages"] * (document["chunk"] + 1)
        if cache.came == cache.parts:
            del self._caches[request]
            self._whole += 1
            self._controller.send({"message": "CacheMoved", "request": request})

    def _answered(self, document: Document) -> None:
        if self._decoder is not None and document["message"] == "Continue":
            self._decoder.begin(document["request"], document["tokens"])


def _decoder(plan: DecodeConfig) -> "SequenceDecoder | None":
    if plan.inference is None:
        return None
    # A host that only receives starts without waiting for torch.
    from workloads.inference.sequence_decoder import SequenceDecoder  # noqa: PLC0415

    return SequenceDecoder(plan.inference)


def main(arguments: list[str]) -> int:
    """Run the decode host of the plan named on the command line. Returns the exit status."""
    if len(arguments) != 1:
        _say("usage: python -m workloads.serving.decode_process PLAN.json")
        return 1
    try:
        plan = read_plan(DecodeConfig, Path(arguments[0]))
        if plan.parent_pid is not None:
            die_with_parent(plan.parent_pid)
        process = DecodeProcess(plan)
        signal.signal(signal.SIGTERM, lambda number, frame: process.end())
        process.run()
    except (ServingError, TransportError, ValueError, KeyError, OSError, RuntimeError) as failure:
        _say(f"{type(failure).__name__}: {failure}")
        return 1
    return 0


def _say(line: str) -> None:
    print(f"wanbed decode host: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
