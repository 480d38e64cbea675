"""One rank's transport as a program on a testbed's host, steered by lines of JSON: ``transport_end.py SETUP.json``.

It says ``{"ready": true}`` once it has met its peers. A line ``{"iteration": i, "microbatches": [...], "receives": n,
"at_ns": t}`` has it send activations of these microbatches at CLOCK_MONOTONIC t, and answer, once n transfers have
arrived and its own have been sent, with each one's times. The end of its input closes the transport; the last line
tells the processor time used since the connections stood.
"""

import json
import resource
import sys
import time
from queue import SimpleQueue
from typing import Any

from wanbed.ground.dataclass_json import from_document
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.transport.event import Closed, Event, Failed, Received, Sent
from wanbed.workloads.transport.links_config import LinksConfig
from wanbed.workloads.transport.receive_buffers import BufferPool
from wanbed.workloads.transport.rendezvous import Identity, Rendezvous
from wanbed.workloads.transport.striped_transport import StripedTransport

RENDEZVOUS_TIMEOUT_NS = 20_000_000_000


def say(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main(path: str) -> None:
    with open(path, encoding="utf-8") as setup_file:
        setup = json.load(setup_file)
    plan = from_document(LinksConfig, setup["plan"])
    identity = Identity(bytes(16), plan.rank, setup["address"], setup["port"])
    sockets = Rendezvous(identity, plan.peers, sys.exit, plan.window_bytes).rendezvous(RENDEZVOUS_TIMEOUT_NS)
    pool, events = BufferPool(), SimpleQueue[Event]()
    transport = StripedTransport(plan, sockets, pool, events.put)
    transport.start()
    started_cpu_s = cpu_s()
    # Written to, because memory that never was is one page of zeros that the processor's cache holds.
    following = plan.boundaries.following
    payload = memoryview(b"\x5a" * (0 if following is None else following.transfer_bytes))
    say({"ready": True})
    for line in sys.stdin:
        order = json.loads(line)
        time.sleep(max(0, order["at_ns"] - time.monotonic_ns()) / 1e9)
        for microbatch in order["microbatches"]:
            transport.send(order["iteration"], Message(MessageKind.ACTIVATION, microbatch), payload)
        received: list[tuple[int, int, int]] = []
        sent = 0
        while len(received) < order["receives"] or sent < len(order["microbatches"]):
            event = events.get()
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Received):
                transport.give_back(event.payload)
                received.append((event.message.microbatch, event.start_ns, event.end_ns))
            sent += isinstance(event, Sent)
        say({"received": received})
    transport.close()
    while not isinstance(event := events.get(), Closed):
        if isinstance(event, Failed):
            raise event.error
    say({"cpu_s": cpu_s() - started_cpu_s})


if __name__ == "__main__":
    main(sys.argv[1])
