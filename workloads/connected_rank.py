"""Run a rank as a process: it reads its configuration, meets its peers, waits at the gate, and begins."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from wanbed.ground.dataclass_json import read_config, write_config
from wanbed.results.records.span_log import Span, SpanLog, SpanLogHeader
from wanbed.workloads.host_process import die_with_parent, print_line, run_configured, wake_precisely
from wanbed.workloads.start_gate import wait_at_gate
from wanbed.workloads.transport.event import Closed, Event, Failed, Received
from wanbed.workloads.transport.links_config import LinksConfig, RendezvousConfig
from wanbed.workloads.transport.peer import TransportError
from wanbed.workloads.transport.receive_buffers import BufferPool
from wanbed.workloads.transport.rendezvous import Rendezvous
from wanbed.workloads.transport.striped_transport import StripedTransport


@dataclass(frozen=True, kw_only=True)
class ConnectedConfig:
    """One rank of one trial. Durations are on the testbed's clock (dilated if the run is).

    - ``iterations``: includes those of the warm-up.
    - ``links``: the rank's peers, and what goes over each link. Peers with a lower number call this rank.
    - ``rendezvous``: how they find each other.
    - ``epoch_ns``: the CLOCK_MONOTONIC time that is 0 in the span log.
    - ``parent_pid``: the process that started this rank. The rank is killed when it ends. None for no such tie.
    - ``start_gate``: the folder of ``wanbed.workloads.start_gate``, where the rank waits for all others before it
      begins.

    Raises ValueError naming the field.
    """

    rank: int
    host: str
    datacenter: str
    gpu: int
    iterations: int
    links: LinksConfig
    rendezvous: RendezvousConfig
    span_log: str
    epoch_ns: int
    parent_pid: int | None = None
    start_gate: str | None = None

    def __post_init__(self) -> None:
        for name, least in (("rank", 0), ("gpu", 0), ("iterations", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)} is below {least}")
        if self.links.rank != self.rank:
            raise ValueError(f"links.rank: {self.links.rank}, where the rank's is {self.rank}")

    def write(self, path: Path) -> None:
        """Write the configuration as JSON, readable only by this user because of the token."""
        write_config(self, path)


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
        stage = config.links.stage
        header = SpanLogHeader(config.rank, config.host, config.datacenter, config.gpu, config.links.pipeline, stage)
        self.log = SpanLog(Path(config.span_log), header)
        self._blank, self._epoch_ns = blank, config.epoch_ns
        self.transport.start()

    def record(self, span: Span) -> None:
        """Log a span, whose times are of CLOCK_MONOTONIC."""
        self.log.record(span._replace(start_ns=span.start_ns - self._epoch_ns, end_ns=span.end_ns - self._epoch_ns))

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
        if config.parent_pid is not None:
            die_with_parent(config.parent_pid)
        wake_precisely()
        rank = ConnectedRank(config, lambda note: print_line(named(config), note), blank=blank)
        if config.start_gate is not None:
            wait_at_gate(Path(config.start_gate))
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
