"""How much memory a transfer takes: one copy of itself where it arrives, chunks where it is relayed."""

import mmap
import multiprocessing
import socket
import threading
from pathlib import Path
from queue import SimpleQueue

import pytest

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.transport.boundary import relay_window
from wanbed.workloads.transport.event import Event, Received
from wanbed.workloads.transport.frame import CHUNK_BYTES
from wanbed.workloads.transport.links_config import BoundariesConfig, BoundaryConfig, LinksConfig
from wanbed.workloads.transport.peer import Peer
from wanbed.workloads.transport.receive_buffers import BufferPool
from wanbed.workloads.transport.striped_transport import StripedTransport

ACTIVATION_BYTES = 256 * 2**20


def resident_bytes(field: str) -> int:
    """This process's memory now (VmRSS) or at most (VmHWM)."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[field].removesuffix("kB")) * 1024


def receive(made: socket.socket) -> int:
    """By how much this process grew, at most, while it received one activation."""
    before = resident_bytes("VmRSS")
    peer = Peer(0, "east-0", "127.0.0.1", None, 1)
    plan = LinksConfig(1, 0, 1, (peer,), 1, BoundariesConfig(previous=BoundaryConfig(0, ACTIVATION_BYTES)))
    events: SimpleQueue[Event] = SimpleQueue()
    StripedTransport(plan, {0: [made]}, BufferPool(), events.put).start()
    event = events.get(timeout=60)
    assert isinstance(event, Received)
    return resident_bytes("VmHWM") - before


def test_an_activation_takes_one_copy_of_itself_where_it_arrives() -> None:
    made, theirs = socket.socketpair()
    made.setblocking(False)
    theirs.setblocking(False)
    # Never written to, the payload is zeros that take no memory; the receiver writes each page of its copy.
    payload = memoryview(mmap.mmap(-1, ACTIVATION_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    peer = Peer(1, "west-0", "127.0.0.1", 1000, 1)
    plan = LinksConfig(0, 0, 0, (peer,), 1, BoundariesConfig(following=BoundaryConfig(1, ACTIVATION_BYTES)))
    sender = StripedTransport(plan, {1: [made]}, BufferPool(), lambda _: None)
    with multiprocessing.get_context("spawn").Pool(1) as processes:
        grown = processes.apply_async(receive, (theirs,))
        sender.start()
        sender.send(0, Message(MessageKind.ACTIVATION, 0), payload)
        grown_bytes = grown.get(timeout=60)
    assert 0.99 * ACTIVATION_BYTES <= grown_bytes <= 1.05 * ACTIVATION_BYTES
    made.close()


@pytest.mark.parametrize("kind", list(MessageKind))
def test_a_relay_holds_chunks_only(mesh: type, kind: MessageKind) -> None:
    size_bytes = 40 * 2**20
    sender, receiver = (0, 1) if kind is MessageKind.ACTIVATION else (1, 0)
    with mesh(2, 2, 2, size_bytes, connections=1) as joined:
        peaks = {rank: Watched(joined.ends[rank].pool) for rank in (2, 3)}
        joined.ends[sender].transport.send(0, Message(kind, 0), memoryview(bytes(size_bytes)))
        assert isinstance(joined.ends[receiver].events.get(timeout=60), Received)
    assert 0 < peaks[2 + sender].peak_bytes <= relay_window(1) * CHUNK_BYTES
    assert 0 < peaks[2 + receiver].peak_bytes <= 33 * CHUNK_BYTES


class Watched:
    """How many bytes of a pool's buffers were in use at most."""

    def __init__(self, pool: BufferPool) -> None:
        self.peak_bytes = 0
        self._in_use = 0
        self._lock = threading.Lock()
        take, give_back = pool.take, pool.give_back

        def watched_take(size_bytes: int) -> memoryview:
            with self._lock:
                self._in_use += size_bytes
                self.peak_bytes = max(self.peak_bytes, self._in_use)
            return take(size_bytes)

        def watched_give_back(buffer: memoryview) -> None:
            with self._lock:
                self._in_use -= buffer.nbytes
            give_back(buffer)

        pool.take, pool.give_back = watched_take, watched_give_back  # type: ignore[method-assign]
