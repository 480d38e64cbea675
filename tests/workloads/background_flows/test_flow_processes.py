"""The two processes of a flow, over loopback."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.workloads.loopback_ranks import LOOPBACK, free_ports
from wanbed.testbed.hosts.start_gate import StartGate
from wanbed.workloads.background_flows.flow import FlowEnd, OfferedRate, ReceiverConfig, SenderConfig
from wanbed.workloads.start_gate import PIPES

MODULE = [sys.executable, "-m"]
S = 10**9


class Flow:
    """Both processes of a flow that offers ``rate_bps``, and the gate that lets it begin."""

    def __init__(self, folder: Path, *, tcp: bool = True, connections: int = 1, rate_bps: int | None = None) -> None:
        (port,) = free_ports(1)
        self.gate = StartGate(folder / "gate", 2, PIPES, opens_itself=False)
        self.samples = folder / "samples.json"
        end = FlowEnd("flow", tcp, connections, 2**20, LOOPBACK, str(folder / "gate"), os.getpid())
        offered, payload = OfferedRate(((0, rate_bps),)), 1448 if tcp else 1472
        self.sender = self._started(
            folder / "sender.json", SenderConfig(end, LOOPBACK, port, "cubic", offered, payload, 1514)
        )
        self.receiver = self._started(
            folder / "receiver.json", ReceiverConfig(end, port, S // 20, time.monotonic_ns(), str(self.samples))
        )

    def _started(self, path: Path, config: SenderConfig | ReceiverConfig) -> "subprocess.Popen[str]":
        config.write(path)
        end = "sender" if isinstance(config, SenderConfig) else "receiver"
        command = [*MODULE, f"wanbed.workloads.background_flows.{end}_process", str(path)]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def begin(self) -> None:
        """Wait until both have come, and let them begin."""
        deadline_s = time.monotonic() + 60
        while not self.gate.is_complete:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
            self.gate.look()
        self.gate.open()

    def received(self) -> list[tuple[int, list[int]]]:
        """End both, and return what the receiver counted by when."""
        for process in (self.sender, self.receiver):
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, process.stderr.read() if process.stderr else ""
        return [(time_ns, counts) for time_ns, counts in json.loads(self.samples.read_text())]

    def close(self) -> None:
        """Leave nothing behind."""
        for process in (self.sender, self.receiver):
            process.kill()
            process.communicate()
        self.gate.__exit__(None, None, None)


def test_a_flow_without_a_rate_sends_over_all_its_connections(tmp_path: Path) -> None:
    flow = Flow(tmp_path, connections=3)
    try:
        flow.begin()
        time.sleep(0.5)
        samples = flow.received()
    finally:
        flow.close()
    assert len(samples[-1][1]) == 3
    assert all(count > 2**20 for count in samples[-1][1])
    assert [time_ns for time_ns, _ in samples] == sorted(time_ns for time_ns, _ in samples)


@pytest.mark.parametrize("tcp", [True, False])
def test_a_flow_with_a_rate_never_sends_more(tmp_path: Path, *, tcp: bool) -> None:
    flow = Flow(tmp_path, tcp=tcp, connections=2 if tcp else 1, rate_bps=40_000_000)
    try:
        flow.begin()
        begin_s = time.monotonic()
        time.sleep(1)
        samples = flow.received()
        lasted_s = time.monotonic() - begin_s
    finally:
        flow.close()
    payload_share = (1448 if tcp else 1472) / 1514
    # On a machine that stands still for a while, what TCP does not take in a tick is not sent later.
    assert 0 < sum(samples[-1][1]) <= 5_000_000 * payload_share * (lasted_s + 0.01)


def test_nothing_is_sent_before_training_begins(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    try:
        deadline_s = time.monotonic() + 60
        while not flow.gate.is_complete and time.monotonic() < deadline_s:
            flow.gate.look()
            time.sleep(0.01)
        time.sleep(0.2)
        flow.receiver.send_signal(signal.SIGTERM)
        assert flow.receiver.wait(30) == 0
        samples = json.loads(flow.samples.read_text())
    finally:
        flow.close()
    assert samples[-1][1] == [0]


def test_a_sender_whose_receiver_has_gone_ends_with_a_line(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    try:
        flow.begin()
        flow.receiver.kill()
        assert flow.sender.wait(30) == 1
        assert flow.sender.stderr is not None
        assert flow.sender.stderr.read().startswith("background 'flow', sender: ")
    finally:
        flow.close()
