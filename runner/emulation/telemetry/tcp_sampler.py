"""Sample the state of every TCP connection between hosts while a trial runs."""

import threading
import time
from collections.abc import Mapping, Sequence

from results.records.schema import TcpSample
from runner.resolve.dilation import undilated_ns
from testbed.kernel.tcp_state import TcpState, TcpStateReader, tcp_states

INTERVAL_S = 0.4
"""The least time between two rounds, by the machine's clock."""

MAX_SHARE = 0.02
"""The share of one core that sampling may take: where a round costs more than that, the next one comes later."""

MAX_ROUNDS = 300
"""The most rounds kept in memory: from then on every second one is dropped and the interval doubled, so that a long
trial is covered evenly."""

Round = tuple[int, list[memoryview]]


class TcpSampler:
    """Ask every host, in a separate thread, from ``start`` until ``stop``; take the reader over and close it.

    Rounds in which nothing was connected are not kept. There is none at the end, when the ranks' sockets have gone.
    """

    def __init__(self, reader: TcpStateReader, epoch_ns: int) -> None:
        self._reader = reader
        self._epoch_ns = epoch_ns
        self._rounds: list[Round] = []
        self._interval_s = INTERVAL_S
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._fault: Exception | None = None

    def start(self) -> None:
        """Ask once, so that a kernel that does not answer is found out at once, and go on. Raises what asking does."""
        try:
            self._ask()
        except BaseException:
            self._reader.close()
            raise
        self._thread.start()

    def stop(self) -> list[Round]:
        """End, and return every round that was kept. Raises what asking has raised meanwhile."""
        self._ending.set()
        self._thread.join()
        self._reader.close()
        if self._fault is not None:
            raise self._fault
        return self._rounds

    def _run(self) -> None:
        pause_s = self._interval_s
        while not self._ending.wait(pause_s):
            try:
                pause_s = max(self._interval_s, self._ask() / MAX_SHARE)
            except Exception as fault:
                # Nobody looks at this thread: left alone, the run would be kept with its samples cut short.
                self._fault = fault
                return

    def _ask(self) -> float:
        """Ask every host; return the CPU seconds that it took."""
        began_s, before_ns = time.thread_time(), time.monotonic_ns()
        messages = self._reader.read()
        moment_ns = (before_ns + time.monotonic_ns()) // 2
        if messages:
            self._rounds.append((max(0, moment_ns - self._epoch_ns), messages))
        if len(self._rounds) >= MAX_ROUNDS:
            self._rounds = self._rounds[::2]
            self._interval_s *= 2
        return time.thread_time() - began_s


def tcp_samples(rounds: Sequence[Round], hosts: Mapping[str, str], dilation: float) -> list[TcpSample]:
    """Return rounds as rows, in the experiment's time; ``hosts`` gives the name of the host at each address."""
    return [
        _sample(undilated_ns(time_ns, dilation), state, dilation)
        for time_ns, messages in rounds
        for state in tcp_states(messages, hosts)
    ]


def _sample(moment_ns: int, state: TcpState, dilation: float) -> TcpSample:
    shortest_ns, delivery_bps = state.shortest_rtt_ns, state.delivery_rate_bps
    undilated = state._replace(
        rtt_ns=undilated_ns(state.rtt_ns, dilation),
        rtt_variation_ns=undilated_ns(state.rtt_variation_ns, dilation),
        shortest_rtt_ns=None if shortest_ns is None else undilated_ns(shortest_ns, dilation),
        delivery_rate_bps=None if delivery_bps is None else round(delivery_bps * dilation),
        window_limited_ns=undilated_ns(state.window_limited_ns, dilation),
        buffer_limited_ns=undilated_ns(state.buffer_limited_ns, dilation),
    )
    return TcpSample(moment_ns, *undilated)
