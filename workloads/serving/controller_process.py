"""A datacenter's prefill controller: ``python -m wanbed.workloads.serving.controller_process CONFIG.json``.

The process runs a ``PrefillController`` and sends its commands to the GPUs. Requests arrive open loop from the moment
at which the first GPU connects, which is when training begins. The process ends when every training GPU has sent its
shutdown message or lost its connection, or on SIGTERM. It then writes the outcome of each request and exits with status
0. On a failure it exits with status 1 and one line on standard error.
"""

import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

from wanbed.ground.dataclass_json import read_config
from wanbed.ground.files import write_whole
from wanbed.workloads.bubbletea.controller import Commands, PrefillController
from wanbed.workloads.bubbletea.messages import BubbleReport, PieceDone, from_document, to_document
from wanbed.workloads.bubbletea.prefill_settings import FillPolicy
from wanbed.workloads.bubbletea.request import Request, RequestRecord
from wanbed.workloads.host_process import die_with_parent, print_line, run_configured, wake_precisely
from wanbed.workloads.serving.frame_channel import Document, FrameChannel, PeerChannel, PreciseTimer, dispatch
from wanbed.workloads.serving.rendezvous import Listener
from wanbed.workloads.serving.serving_configs import ControllerConfig
from wanbed.workloads.transport.peer import TransportError

_NAME = "wanbed prefill controller"
_print = partial(print_line, _NAME)
_TIMES = [field.name for field in fields(RequestRecord) if field.name.endswith("_ns")]
_ARRIVALS_AT_ONCE = 64
"""At most this many due arrivals are handled before messages are read again."""


class ControllerProcess:
    """The process of a controller. Construct it, then call ``run``."""

    def __init__(self, config: ControllerConfig) -> None:
        service, own = config.service, config.own
        self._config = config
        self._controller = PrefillController(own.name, own.groups, service.model, service.profile, service.settings)
        training = () if service.settings.policy is FillPolicy.NONE else own.groups
        self._training = {gpu for group in training if not group.pooled for gpu in group.gpus}
        self._still_training = set(self._training)
        self._selector = selectors.DefaultSelector()
        self._timer = PreciseTimer()
        self._selector.register(self._timer, selectors.EVENT_READ, lambda mask: self._timer.passed())
        self._news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._news, selectors.EVENT_READ, lambda mask: None)
        self._listener = Listener(config.listen, config.run_token, self._selector, self._accept, _print)
        self._gpus: dict[int, PeerChannel] = {}
        self._early_commands: dict[int, list[Document]] = {}
        self._arrivals: Iterator[Request] = (r for datacenter, r in service.arrivals() if datacenter == own)
        self._next: Request | None = None
        self._requests: dict[int, Request] = {}
        self._begin_ns: int | None = None
        self._latest_ns = 0
        self._ending = False

    def end(self) -> None:
        """Make ``run`` return. Safe to call from a signal handler."""
        self._ending = True
        os.eventfd_write(self._news, 1)

    def run(self) -> None:
        """Serve until the end, then write the records."""
        while not self._ending:
            due = self._next is not None and self._due_ns(self._next) <= time.monotonic_ns()
            dispatch(self._selector, 0 if due else None)
            self._play_arrivals()
        self._listener.close()
        self._write_records()
        # A SIGTERM may still arrive while the process exits.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _due_ns(self, request: Request) -> int:
        assert self._begin_ns is not None
        return self._begin_ns + request.arrival_ns

    def _await_next(self) -> None:
        self._next = next(self._arrivals, None)
        if self._next is not None:
            self._timer.set(self._due_ns(self._next))

    def _play_arrivals(self) -> None:
        for _ in range(_ARRIVALS_AT_ONCE):
            request, now_ns = self._next, time.monotonic_ns()
            if request is None or self._due_ns(request) > now_ns:
                return
            self._latest_ns = max(self._latest_ns, now_ns - self._due_ns(request))
            self._requests[request.number] = request
            self._send_commands(self._controller.arrived(now_ns, request))
            self._await_next()

    def _send_commands(self, commands: Commands) -> None:
        for command in commands:
            document = to_document(command)
            if (gpu := self._gpus.get(command.gpu)) is not None:
                gpu.send(document)
            else:
                self._early_commands.setdefault(command.gpu, []).append(document)

    def _accept(self, channel: FrameChannel, gpu: int | None, documents: list[Document]) -> None:
        def gone(_why: str) -> None:
            if gpu is not None:
                self._gpu_left(gpu)

        def handle(document: Document) -> None:
            self._handle(document)
            if continues and document.get("message") == "CacheMoved":
                request = self._requests[document["request"]]
                caller.send({"message": "Continue", "request": request.number, "tokens": request.output_tokens})

        continues = self._config.service.inference is not None
        caller = PeerChannel(self._selector, channel, handle, gone)
        if gpu is not None:
            self._gpus[gpu] = caller
            if self._begin_ns is None:
                self._begin_ns = time.monotonic_ns()
                self._await_next()
            for document in self._early_commands.pop(gpu, ()):
                caller.send(document)
        caller.handle_all(documents)

    def _gpu_left(self, gpu: int) -> None:
        self._still_training.discard(gpu)
        if self._training and not self._still_training:
            self.end()

    def _handle(self, document: Document) -> None:
        now_ns = time.monotonic_ns()
        match document.get("message"):
            case "Shutdown":
                self._gpu_left(document["gpu"])
            case "ActivationArrived":
                request, stage, chunk = document["request"], document["stage"], document["chunk"]
                self._send_commands(self._controller.activation_arrived(now_ns, request, stage, chunk))
            case "CacheMoved":
                self._send_commands(self._controller.kv_moved(now_ns, document["request"]))
            case _:
                match from_document(document, self._config.epoch_ns):
                    case BubbleReport() as report:
                        self._send_commands(self._controller.bubbles_reported(now_ns, report))
                    case PieceDone() as done:
                        self._send_commands(self._controller.piece_done(now_ns, done))

    def _write_records(self) -> None:
        epoch_ns = self._config.epoch_ns
        rows: list[dict[str, Any]] = []
        for number, record in self._controller.records.items():
            row = {**asdict(record), "output_tokens": self._requests[number].output_tokens}
            row.update({name: row[name] - epoch_ns for name in _TIMES if row[name] is not None})
            rows.append(row)
        document = {"requests": rows, "latest_arrival_ns": self._latest_ns}
        write_whole(Path(self._config.records), json.dumps(document))


def _run_controller(config: ControllerConfig) -> None:
    """Run the controller until it is told to end."""
    if config.parent_pid is not None:
        die_with_parent(config.parent_pid)
    wake_precisely()
    process = ControllerProcess(config)
    signal.signal(signal.SIGTERM, lambda number, frame: process.end())
    process.run()


def main(arguments: list[str]) -> int:
    """Run the controller whose configuration file is named on the command line. Return the exit status."""
    return run_configured(
        arguments,
        module="wanbed.workloads.serving.controller_process",
        name=_NAME,
        read=partial(read_config, ControllerConfig),
        run=_run_controller,
        faults=(TransportError,),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
