"""Run a rank as a process: it reads its configuration, meets its peers, waits at the gate, and begins."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from wanbed.ground.dataclass_json import read_config
from wanbed.results.records.span_log import Span, SpanLog
from wanbed.workloads.connected_config import ConnectedConfig
from wanbed.workloads.host_process import print_line, run_configured
from wanbed.workloads.transport.event import Closed, Event, Failed, Received
from wanbed.workloads.transport.peer import TransportError
from wanbed.workloads.transport.receive_buffers import BufferPool
from wanbed.workloads.transport.rendezvous import Rendezvous
from wanbed.workloads.transport.striped_transport import StripedTransport

Config = TypeVar("Config", bound=ConnectedConfig)


class ConnectedRank:
    """A rank whose connections are established: it sends and receives messages, and logs its spans.

    A ``blank`` rank's messages have no contents: the memory of payloads is never touched.
    """

    def __init__(self, config: ConnectedConfig, log: Callable[[str], None], *, blank: bool = False) -> None:
        self.pool = BufferPool()
        self.events: SimpleQueue[Event] = SimpleQueue()
        sockets = Rendezvous.configured(config.rendezvous, config.links, log).rendezvous(config.rendezvous.timeout_ns)
        self.transport = StripedTransport(config.links, sockets, self.pool, self._report, blank=blank)
        self.log = SpanLog(Path(config.process.span_log), config.place)
        self._blank, self._process = blank, config.process
        self.transport.start()

    def record(self, span: Span) -> None:
        """Log a span, whose times are of CLOCK_MONOTONIC."""
        self.log.record(self._process.since_epoch(span))

    def close(self, handle: Callable[[Event], None] = lambda event: None) -> None:
        """Shut the transport down, and complete the log. What still arrives is handled. Raise TransportError."""
        self.transport.close()
        while not isinstance(event := self.next_event(), Closed):
            handle(event)
        self.log.complete()

    def next_event(self, timeout_s: float | None = None) -> Event:
        """Wait for the next event of the transport. Raise TransportError if it is a failure, Empty after the time."""
        event = self.events.get(timeout=timeout_s)
        if isinstance(event, Failed):
            raise event.error
        return event

    def _report(self, event: Event) -> None:
        if self._blank and isinstance(event, Received):
            self.pool.give_back(event.payload)
        self.events.put(event)


def run_connected(
    arguments: Sequence[str],
    module: str,
    kind: type[Config],
    run: Callable[[Config, ConnectedRank], None],
    *,
    name: str = "wanbed rank",
    blank: bool = False,
) -> int:
    """Run the rank configured by the file named on the command line of ``module``. Return the exit status, 0 or 1.

    ``run`` is called when the rank is connected and all others are too. Lines on stderr begin with ``name``.
    """

    def named(config: Config) -> str:
        return f"{name} {config.rank} ({config.host})"

    def connect(config: Config) -> None:
        config.process.prepare()
        rank = ConnectedRank(config, lambda note: print_line(named(config), note), blank=blank)
        config.process.await_all()
        run(config, rank)

    return run_configured(
        arguments,
        module=module,
        name=name,
        read=partial(read_config, kind),
        run=connect,
        faults=(TransportError,),
        named=named,
    )


def end_process(status: int) -> None:
    """End this process. A thread may be waiting for a lost peer, and a normal exit after a fault would wait for it."""
    if status:
        os._exit(status)
