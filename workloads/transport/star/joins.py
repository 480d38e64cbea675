"""The thread at the rank that gathers which lets replicas connect again that were lost."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import SimpleQueue
from threading import Thread

from wanbed.workloads.transport.event import Event, Failed, StateReceived
from wanbed.workloads.transport.rendezvous import Rendezvous
from wanbed.workloads.transport.striped_transport import StripedTransport


class Joins(AbstractContextManager["Joins"]):
    """Accepts the calls of replicas that come back, and hands their connections to ``transport``, while it is entered.

    ``rendezvous`` has all replicas as callers. ``report`` is called from the thread with Failed, if that fails.
    """

    def __init__(self, rendezvous: Rendezvous, transport: StripedTransport, report: Callable[[Event], None]) -> None:
        self._rendezvous = rendezvous
        self._transport = transport
        self._report = report
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = Thread(target=self._run, name="joins", daemon=True)

    def __enter__(self) -> "Joins":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        os.close(self._stop)

    def _run(self) -> None:
        try:
            while (found := self._rendezvous.await_caller(self._stop)) is not None:
                self._transport.connect_again(*found)
        except Exception as fault:
            self._report(Failed(fault))


def await_state(events: "SimpleQueue[Event]") -> StateReceived:
    """Wait at a replica that joins for what it begins with. Raise the error that ends the connections before."""
    while True:
        match events.get():
            case StateReceived() as state:
                return state
            case Failed(error):
                raise error
