"""Replicas that synchronise seldom, in virtual time: what they send over the WAN, and how the simulator agrees."""

from pathlib import Path

import pytest

from tests.support.runner.called_wanbed import run_here, simulate_here
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed.results.reading.run import Run

REPLICAS, STEPS, SYNC_EVERY = 3, 4, 2
PARAMETERS = 3 * 2**20
WIRE_BYTES = {"fp32": 4.0, "bf16": 2.0, "int8": 1.0, "fp8": 1.0, "fp4": 0.5}
ON_THE_WIRE = 1514 / 1448
"""Bytes of a full Ethernet frame over those of TCP's payload in it."""

EXPERIMENT = """
name: local-updates
clock: virtual
topology:
  datacenters: [{name: east, hosts: 1}, {name: central, hosts: 1}, {name: west, hosts: 1}]
  wan: {latency: 10ms, rate: 200Mbit}
compute: {forward: 20ms, backward: 40ms, optimizer: 5ms, gradient: 12MiB}
training: {stages: 1, pipelines: 3, microbatches: 2, iterations: 4, warmup: 2, precision: fp32}
variants:
  - name: streaming
    schedule: diloco
    options: {sync_every: 2, fragments: 1, delay: 1, wire: bf16}
    transport: {connections: 2}
""" + "".join(
    f"""  - name: {wire}
    schedule: diloco
    options: {{inner: dp, sync_every: {SYNC_EVERY}, wire: {wire}}}
    transport: {{connections: 2}}
"""
    for wire in WIRE_BYTES
)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Run:
    kernel_or_skip()
    return run_here(EXPERIMENT, tmp_path_factory.mktemp("emulated"))


@pytest.mark.parametrize("wire", WIRE_BYTES)
def test_a_replica_sends_the_closed_form_over_the_wan(emulated: Run, wire: str) -> None:
    each = 2 * (REPLICAS - 1) / REPLICAS * PARAMETERS * WIRE_BYTES[wire]
    payload_bytes = each * STEPS / SYNC_EVERY
    samples = emulated.link_samples
    own = samples[(samples["variant"] == wire) & (samples["scope"] == "link")]
    sent = own.groupby(["source", "destination"], observed=True)["wire_bytes"].max().nlargest(REPLICAS)
    for wire_bytes in sent:
        assert payload_bytes * ON_THE_WIRE <= wire_bytes <= payload_bytes * ON_THE_WIRE * 1.01


def test_streaming_sends_as_much_and_hides_it(emulated: Run) -> None:
    summary = emulated.summary.set_index("variant")
    assert summary["wan_bytes"]["streaming"] == pytest.approx(summary["wan_bytes"]["bf16"], rel=0.02)
    # An iteration computes for 125 ms, and a synchronisation takes about twice that.
    hidden_s = (summary["iteration_time_s"]["bf16"] - summary["iteration_time_s"]["streaming"]) * SYNC_EVERY
    assert hidden_s == pytest.approx(0.125, abs=0.02)


def test_the_simulator_agrees(emulated: Run, tmp_path: Path) -> None:
    simulated = simulate_here(EXPERIMENT, tmp_path).summary.set_index("variant")["iteration_time_s"]
    measured = emulated.summary.set_index("variant")["iteration_time_s"]
    for name, time_s in measured.items():
        assert simulated[str(name)] == pytest.approx(time_s, rel=0.05), name
