"""The worker of one GPU. It keeps the connections of its prefill, and reports when runs are over."""

import json
import os
import selectors
import threading
import time
from collections.abc import Callable
from pathlib import Path

from workloads.compute.timer_slack import wake_precisely
from workloads.prefill.messages import Piece, PieceDone, QueuePiece, from_document, to_document
from workloads.serving.frame_channel import PAYLOAD, Document, FrameChannel
from workloads.serving.gpu.shared_gpu import SharedGpu
from workloads.serving.peer_channel import PeerChannel
from workloads.serving.rendezvous import Listener, ServingError, call, send_hello
from workloads.serving.serving_configs import Endpoint, GpuServingConfig
from workloads.transport.peer import TransportError

_SHUTDOWN_NS = 1_000_000_000


class GpuWorker:
    """Listens from its construction on. ``serve`` returns when ``stop`` was called, or the controller has gone.

    Both the controller and the decode hosts may start later. Training never waits for any of it. Nothing lost with a
    connection is recovered: the requests that needed it stay unfinished.
    """

    def __init__(self, plan: GpuServingConfig, token: str, gpu: SharedGpu, note: Callable[[str], None]) -> None:
        self._plan = plan
        self._token = token
        self._gpu = gpu
        self._note = note
        self._selector = selectors.DefaultSelector()
        keeps = plan.inference is not None
        self._listener = Listener(plan.listen, token, self._selector, self._previous_called, note, keeps_payloads=keeps)
        self._selector.register(gpu.timer, selectors.EVENT_READ, lambda mask: gpu.timer.passed())
        self._selector.register(gpu.news, selectors.EVENT_READ, lambda mask: self._handle_news())
        self._pieces: dict[tuple[int, int], Piece] = {}
        self._controller: PeerChannel | None = None
        self._following: PeerChannel | None = None
        self._decodes: list[PeerChannel] = []
        self._stopping = False
        self._pieces_done = 0
        self._kv_bytes = 0
        self._activation_bytes = 0
        self._fault = ""

    def stop(self) -> None:
        """Let ``serve`` come to its end. Any thread may call it."""
        self._stopping = True
        os.eventfd_write(self._gpu.news, 1)

    def serve(self) -> None:
        """Serve until ``stop``, or until the controller has gone, which is logged. Never raises for the network."""
        try:
            wake_precisely()
            self._rendezvous()
            while not self._stopping and not self._fault:
                self._look(None)
                self._tell()
            self._send_shutdown()
        except (ServingError, TransportError, OSError, ValueError, KeyError, RuntimeError) as fault:
            self._fault = f"{type(fault).__name__}: {fault}"
        finally:
            self._gpu.stop()
            self._listener.close()
            for each in (self._controller, self._following, *self._decodes):
                if each is not None:
                    each.close()
        if self._fault:
            self._note(f"prefill has ended: {self._fault}")
        self._write_counts()

    def _rendezvous(self) -> None:
        plan = self._plan
        self._controller = self._call(plan.controller, self._commanded, self._controller_gone)
        self._decodes = [self._call(decode, _ignore, self._lost(decode)) for decode in plan.decodes]
        if plan.following is not None:
            self._following = self._call(plan.following, _ignore, self._lost(plan.following))

    def _call(self, peer: Endpoint, handle: Callable[[Document], None], gone: Callable[[str], None]) -> PeerChannel:
        plan = self._plan
        hello = send_hello(self._token, plan.gpu)
        channel = call(plan.listen.address, peer, hello, plan.rendezvous_timeout_ns, lambda: self._stopping)
        return PeerChannel(self._selector, channel, handle, gone)

    def _lost(self, peer: Endpoint) -> Callable[[str], None]:
        def note(why: str) -> None:
            if not self._stopping:
                self._note(f"lost {peer.host} port {peer.port}: {why}")

        return note

    def _controller_gone(self, why: str) -> None:
        self._fault = f"the controller on {self._plan.controller.host} has gone: {why}"

    def _handle_news(self) -> None:
        try:
            os.eventfd_read(self._gpu.news)
        except BlockingIOError:
            return

    def _look(self, timeout_s: float | None) -> None:
        for key, mask in self._selector.select(timeout_s):
            if key.fileobj in self._selector.get_map():
                key.data(mask)

    def _commanded(self, document: Document) -> None:
        command = from_document(document)
        if not isinstance(command, QueuePiece) or command.gpu != self._plan.gpu:
            raise ValueError(f"GPU {self._plan.gpu} was told {document}")
        piece = command.piece
        self._pieces[piece.request, piece.chunk] = piece
        self._gpu.enqueue(piece)

    def _previous_called(self, channel: FrameChannel, gpu: int | None, documents: list[Document]) -> None:
        previous = PeerChannel(self._selector, channel, self._activation, lambda why: None)
        previous.handle_all(documents)

    def _activation(self, document: Document) -> None:
        request, chunk = document["request"], document["chunk"]
        self._gpu.input_arrived(request, chunk, document.get(PAYLOAD))
        if self._controller is not None:
            arrived = {"message": "ActivationArrived", "request": request, "chunk": chunk, "stage": document["stage"]}
            self._controller.send(arrived)

    def _tell(self) -> None:
        """Let the GPU go on, and send its results to those who need them."""
        assert self._controller is not None
        for message in self._gpu.advance():
            self._controller.send(to_document(message))
            if isinstance(message, PieceDone):
                self._pass_on(self._pieces.pop((message.request, message.chunk)))

    def _pass_on(self, piece: Piece) -> None:
        plan = self._plan
        self._pieces_done += 1
        named = {"request": piece.request, "chunk": piece.chunk}
        made = self._gpu.take_results(piece)
        if self._following is not None:
            size_bytes = plan.activation_token_bytes * piece.tokens
            self._activation_bytes += size_bytes
            activation = {"message": "Activation", **named, "stage": piece.stage + 1}
            self._following.send(activation, size_bytes if made is None else made.activation_bytes)
        size_bytes = plan.kv_sent_bytes(piece.layers, piece.tokens)
        self._kv_bytes += size_bytes
        part = {"message": "CachePart", **named, "stage": piece.stage, "stages": plan.stages, "last": piece.last}
        if made is not None:
            part |= {"layers": [plan.layers.start, plan.layers.stop], "first_token": made.first_token}
        self._decodes[plan.decode(piece.request)].send(part, size_bytes if made is None else made.cache)

    def _send_shutdown(self) -> None:
        if self._controller is None or self._fault:
            return
        self._gpu.stop()
        self._tell()
        self._controller.send({"message": "Goodbye", "gpu": self._plan.gpu})
        deadline_ns = time.monotonic_ns() + _SHUTDOWN_NS
        while self._controller.here and self._controller.channel.unsent and time.monotonic_ns() < deadline_ns:
            self._look(0.1)

    def _write_counts(self) -> None:
        counts = {
            "gpu": self._plan.gpu,
            **self._gpu.counts(),
            "pieces_done": self._pieces_done,
            "kv_bytes": self._kv_bytes,
            "activation_bytes": self._activation_bytes,
            "fault": self._fault,
        }
        Path(self._plan.counts).write_text(json.dumps(counts), encoding="utf-8")


class WorkerThread:
    """Runs a worker beside training, in a thread of its own."""

    def __init__(self, worker: GpuWorker) -> None:
        self._worker = worker
        self._thread = threading.Thread(target=worker.serve, name="prefill", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End the worker, as training is over, and wait for its last messages for 3 s at most."""
        self._worker.stop()
        self._thread.join(3)


def _ignore(_document: Document) -> None:
    """Ignore the document: nobody there has anything to report."""
