"""The worker of one GPU: it holds the connections of the GPU's prefill and exchanges its messages and results."""

import json
import os
import selectors
import threading
from collections.abc import Callable
from pathlib import Path

from wanbed.workloads.bubbletea.bubble_filler import BubbleFiller
from wanbed.workloads.bubbletea.bubble_forecast import BubbleForecast
from wanbed.workloads.bubbletea.messages import Piece, PieceDone, QueuePiece, from_document, to_document
from wanbed.workloads.bubbletea.prefill_settings import FillPolicy
from wanbed.workloads.host_process import wake_precisely
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
from wanbed.workloads.serving.serving_configs import Endpoint, GpuServingConfig
from wanbed.workloads.serving.shared_gpu import SharedGpu
from wanbed.workloads.transport.peer import TransportError


class GpuWorker:
    """The worker of ``gpu``. It listens from its construction on; ``serve`` connects to its peers and runs it.

    The controller and the decode hosts may start later. Training never waits for the worker. Data lost with a
    connection is not recovered: the requests that needed it stay unfinished.
    """

    def __init__(self, config: GpuServingConfig, token: str, gpu: SharedGpu, log: Callable[[str], None]) -> None:
        self._config = config
        self._token = token
        self._gpu = gpu
        self._log = log
        self._selector = selectors.DefaultSelector()
        keeps = config.inference is not None
        self._listener = Listener(
            config.peers.listen, token, self._selector, self._accept_previous, log, keeps_payloads=keeps
        )
        self._selector.register(gpu.timer, selectors.EVENT_READ, lambda mask: gpu.timer.passed())
        self._selector.register(gpu.news, selectors.EVENT_READ, lambda mask: self._handle_news())
        self._pieces: dict[tuple[int, int], Piece] = {}
        self._controller: PeerChannel | None = None
        self._previous: list[PeerChannel] = []
        self._following: PeerChannel | None = None
        self._decodes: list[PeerChannel] = []
        self._stopping = False
        self._pieces_done = 0
        self._kv_bytes = 0
        self._activation_bytes = 0
        self._fault = ""

    def stop(self) -> None:
        """Make ``serve`` return. Any thread may call it."""
        self._stopping = True
        os.eventfd_write(self._gpu.news, 1)

    def serve(self) -> None:
        """Serve until ``stop`` is called or the controller's connection has ended. Network failures are only logged."""
        try:
            wake_precisely()
            controller = self._rendezvous()
            while not self._stopping and not self._fault:
                dispatch(self._selector, None)
                self._send_messages(controller)
            if not self._fault:
                self._send_shutdown(controller)
        except (ServingError, TransportError, OSError, ValueError, KeyError, RuntimeError) as fault:
            self._fault = f"{type(fault).__name__}: {fault}"
        finally:
            self._gpu.stop()
            self._listener.close()
            for each in (self._controller, self._following, *self._decodes):
                if each is not None:
                    each.close()
        if self._fault:
            self._log(f"prefill has ended: {self._fault}")
        self._write_counts()

    def _rendezvous(self) -> PeerChannel:
        """Connect to all peers. Return the controller."""
        peers = self._config.peers
        self._controller = controller = self._call(peers.controller, self._handle_command, self._controller_gone)
        self._decodes = [self._call_receiver(decode) for decode in peers.decodes]
        if peers.following is not None:
            self._following = self._call_receiver(peers.following)
        return controller

    def _call_receiver(self, peer: Endpoint) -> PeerChannel:
        """Connect to a peer that receives results. It sends nothing until it ends, and its training may end first."""

        def handle(document: Document) -> None:
            if document == SHUTDOWN:
                receiver.close()

        receiver = self._call(peer, handle, self._lost(peer))
        return receiver

    def _call(self, peer: Endpoint, handle: Callable[[Document], None], gone: Callable[[str], None]) -> PeerChannel:
        peers = self._config.peers
        hello = send_hello(self._token, self._config.gpu)
        channel = call(peers.listen.address, peer, hello, peers.rendezvous_timeout_ns, lambda: self._stopping)
        return PeerChannel(self._selector, channel, handle, gone)

    def _lost(self, peer: Endpoint) -> Callable[[str], None]:
        def log(why: str) -> None:
            if not self._stopping:
                self._log(f"lost {peer.host} port {peer.port}: {why}")

        return log

    def _controller_gone(self, why: str) -> None:
        if self._config.pooled:
            # It goes when training has ended, and has nothing more for a GPU that does not train.
            self._stopping = True
            return
        self._fault = f"the controller on {self._config.peers.controller.host} has gone: {why}"

    def _handle_news(self) -> None:
        try:
            os.eventfd_read(self._gpu.news)
        except BlockingIOError:
            return

    def _handle_command(self, document: Document) -> None:
        command = from_document(document)
        if not isinstance(command, QueuePiece) or command.gpu != self._config.gpu:
            raise ValueError(f"GPU {self._config.gpu} received an unexpected message: {document}")
        piece = command.piece
        self._pieces[piece.request, piece.chunk] = piece
        self._gpu.enqueue(piece)

    def _accept_previous(self, channel: FrameChannel, gpu: int | None, documents: list[Document]) -> None:
        previous = PeerChannel(self._selector, channel, self._handle_activation, lambda why: None)
        self._previous.append(previous)
        previous.handle_all(documents)

    def _handle_activation(self, document: Document) -> None:
        request, chunk = document["request"], document["chunk"]
        self._gpu.input_arrived(request, chunk, document.get(PAYLOAD))
        if self._controller is not None:
            arrived = {"message": "ActivationArrived", "request": request, "chunk": chunk, "stage": document["stage"]}
            self._controller.send(arrived)

    def _send_messages(self, controller: PeerChannel) -> None:
        """Advance the GPU, then send its messages to the controller and its results to the next hosts."""
        for message in self._gpu.advance():
            controller.send(to_document(message, self._config.epoch_ns))
            if isinstance(message, PieceDone):
                self._send_results(self._pieces.pop((message.request, message.chunk)))

    def _send_results(self, piece: Piece) -> None:
        served = self._config.served
        self._pieces_done += 1
        piece_key = {"request": piece.request, "chunk": piece.chunk}
        results = self._gpu.take_results(piece)
        if self._following is not None:
            size_bytes = served.activation_token_bytes * piece.tokens
            self._activation_bytes += size_bytes
            activation = {"message": "Activation", **piece_key, "stage": piece.stage + 1}
            self._following.send(activation, size_bytes if results is None else results.activation_bytes)
        size_bytes = served.kv_sent_bytes(piece.layers, piece.tokens)
        self._kv_bytes += size_bytes
        part = {"message": "CachePart", **piece_key, "stage": piece.stage, "stages": served.stages, "last": piece.last}
        if results is not None:
            part |= {"layers": [served.layers.start, served.layers.stop], "first_token": results.first_token}
        self._decodes[self._config.peers.decode(piece.request)].send(
            part, size_bytes if results is None else results.cache
        )

    def _send_shutdown(self, controller: PeerChannel) -> None:
        self._gpu.stop()
        self._send_messages(controller)
        controller.send({**SHUTDOWN, "gpu": self._config.gpu})
        for previous in self._previous:
            previous.send(SHUTDOWN)
        send_last(self._selector, [controller, *self._previous])

    def _write_counts(self) -> None:
        counts = {
            "gpu": self._config.gpu,
            **self._gpu.counts(),
            "pieces_done": self._pieces_done,
            "kv_bytes": self._kv_bytes,
            "activation_bytes": self._activation_bytes,
            "fault": self._fault,
        }
        Path(self._config.counts).write_text(json.dumps(counts), encoding="utf-8")


class WorkerThread:
    """Runs a worker in a thread of its own, beside training."""

    def __init__(self, worker: GpuWorker) -> None:
        self._worker = worker
        self._thread = threading.Thread(target=worker.serve, name="prefill", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the worker after training, and wait at most 3 s until it has sent its last messages."""
        self._worker.stop()
        self._thread.join(3)


def serving_gpu(config: GpuServingConfig) -> SharedGpu:
    """Return the GPU of ``config``. A GPU of the pool predicts nothing and runs each piece as soon as it can.

    Where torch computes, the weights are created here. Raises ValueError if the device is not available.
    """
    policy = FillPolicy.GREEDY if config.pooled else config.settings.policy
    filler = BubbleFiller(BubbleForecast(config.settings, config.training), config.profile, policy)
    if config.inference is None:
        return SharedGpu(config.gpu, filler)
    # Import torch only if it is needed: a process that replays starts in tens of milliseconds.
    from wanbed.workloads.serving.computed_gpu import ComputedGpu  # noqa: PLC0415
    from wanbed.workloads.serving.prefill_compute import PrefillCompute  # noqa: PLC0415

    prefill = PrefillCompute(config.inference, config.served.layers, config.settings.chunk_tokens)
    return ComputedGpu(config.gpu, filler, prefill)
