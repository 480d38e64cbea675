"""Sample the state of every TCP connection between hosts while a trial runs."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Self

from wanbed.results.records.schema import TcpSample
from wanbed.results.records.trial_tables import TCP_TABLE, TrialTable
from wanbed.runner.companions.telemetry.on_hosts.sampling import Sampler
from wanbed.runner.resolve.dilation import undilated_ns
from wanbed.testbed.kernel.tcp_state import TcpState, TcpStates, tcp_states
from wanbed.testbed.running_testbed import RunningTestbed

Round = list[memoryview]
"""One kernel message for each end of each connection."""


class TcpSampler(Sampler[Round]):
    """Query every host in turn. ``hosts`` maps each address to its host's name.

    Rounds without connections are not stored. There is no reading at the end, because the ranks' sockets are closed.
    """

    interval_s = 0.4
    max_core_share = 0.02
    max_readings = 300
    reads_at_end = False

    def __init__(self, reader: TcpStates, hosts: Mapping[str, str]) -> None:
        self._reader = reader
        self._hosts = hosts

    @classmethod
    def of(cls, testbed: RunningTestbed, ending: ExitStack) -> Self | None:
        """Return a sampler of all hosts, None where TCP is modelled.

        A kernel that does not answer is detected at the first reading.
        """
        reader = testbed.tcp_state_reader()
        if reader is None:
            return None
        ending.callback(reader.close)
        return cls(reader, testbed.addresses.host_names())

    def read(self) -> Round | None:
        """Query every host. Raise MissingError if the kernel does not report TCP state, OSError for any other fault."""
        return self._reader.read() or None

    def tables(self, readings: Sequence[tuple[int, Round]], dilation: float) -> dict[TrialTable, list[TcpSample]]:
        """Return one row per round and end of a connection."""
        return {
            TCP_TABLE: [
                _sample(time_ns, state, dilation)
                for time_ns, messages in readings
                for state in tcp_states(messages, self._hosts)
            ]
        }


def _sample(time_ns: int, state: TcpState, dilation: float) -> TcpSample:
    shortest_ns, delivery_bps = state.shortest_rtt_ns, state.delivery_rate_bps
    undilated = state._replace(
        rtt_ns=undilated_ns(state.rtt_ns, dilation),
        rtt_variation_ns=undilated_ns(state.rtt_variation_ns, dilation),
        shortest_rtt_ns=None if shortest_ns is None else undilated_ns(shortest_ns, dilation),
        delivery_rate_bps=None if delivery_bps is None else round(delivery_bps * dilation),
        window_limited_ns=undilated_ns(state.window_limited_ns, dilation),
        buffer_limited_ns=undilated_ns(state.buffer_limited_ns, dilation),
    )
    return TcpSample(time_ns, *undilated)
