"""Activations that are encoded over the WAN, in virtual time: what crosses it, and how the simulator agrees."""

from pathlib import Path

import pytest

from tests.support.runner.called_wanbed import run_here, simulate_here
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed.results.reading.run import Run

ITERATIONS, PIPELINES, MICROBATCHES, BLOCKS = 3, 2, 4, 512
ON_THE_WIRE = 1514 / 1448
"""Bytes of a full Ethernet frame over those of TCP's payload in it."""

BLOCK_BYTES = {
    "plain": 2048,
    "int8": 1028,
    "fp4 split": 516,
    "topk fed back": 102 * 4,
    "int8 shared": 1028,
    "int8 planned": 1028,
    "int8 virtual stages": 1028,
    "int8 held by sends": 1028,
}
CROSSINGS = {"int8 virtual stages": 3}
"""How many boundaries cross the WAN, if it is not one."""

EXPERIMENT = """
name: encoded-activations
clock: virtual
topology:
  datacenters: [{name: east, hosts: 4}, {name: west, hosts: 4}]
  wan: {latency: 10ms, rate: 400Mbit, node_pair_rate: 200Mbit}
compute: {forward: 10ms, backward: 20ms, activation: 1MiB, gradient: 1kB}
training: {stages: 4, pipelines: 2, microbatches: 4, iterations: 3, warmup: 1}
variants:
  - {name: plain, schedule: 1f1b}
  - {name: int8, schedule: 1f1b, transport: {activation: {wire: int8, encode: 1GB/s, decode: 2GB/s}}}
  - {name: fp4 split, schedule: zb-h1, transport: {connections: 4, activation: {wire: fp4, encode: 500MB/s}}}
  - name: topk fed back
    schedule: gpipe
    transport: {activation: {wire: topk, kept: 10%, error_feedback: true, encode: 200MB/s, decode: 1GB/s}}
  - name: int8 shared
    schedule: varuna
    transport: {sharing: temporal, pipelines_per_cell: 2, activation: {wire: int8}}
  - name: int8 planned
    schedule: atlas
    transport: {connections: 4, sharing: temporal, pipelines_per_cell: 2, activation: {wire: int8, encode: 1GB/s}}
  - name: int8 virtual stages
    schedule: interleaved-1f1b
    training: {virtual_stages: 2}
    transport: {connections: 2, activation: {wire: int8, encode: 1GB/s}}
  - name: int8 held by sends
    schedule: 1f1b
    transport: {overlap: false, activation: {wire: int8}}
"""


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Run:
    kernel_or_skip()
    return run_here(EXPERIMENT, tmp_path_factory.mktemp("emulated"))


@pytest.mark.parametrize("variant", BLOCK_BYTES)
def test_what_crosses_the_wan_is_encoded(emulated: Run, variant: str) -> None:
    messages = ITERATIONS * PIPELINES * MICROBATCHES * CROSSINGS.get(variant, 1)
    payload_bytes = messages * BLOCKS * BLOCK_BYTES[variant]
    samples = emulated.link_samples
    own = samples[(samples["variant"] == variant) & (samples["scope"] == "link")]
    sent = own.groupby(["source", "destination"], observed=True)["wire_bytes"].max()
    # Beside the messages there are the headers of chunks, and acknowledgements of what comes the other way.
    assert list(sent) == [pytest.approx(payload_bytes * ON_THE_WIRE, rel=0.04)] * 2


def test_spans_have_the_sizes_on_the_wire(emulated: Run) -> None:
    spans = emulated.spans
    sends = spans[(spans["variant"] == "topk fed back") & (spans["kind"] == "send")]
    crossing = sends["stage"].isin([1, 2]) & ((sends["stage"] == 1) == (sends["tensor"] == "activation"))
    assert set(sends[crossing]["size_bytes"]) == {BLOCKS * 102 * 4}
    assert set(sends[~crossing]["size_bytes"]) == {2**20}


def test_the_simulator_agrees(emulated: Run, tmp_path: Path) -> None:
    simulated = simulate_here(EXPERIMENT, tmp_path).summary.set_index("variant")["iteration_time_s"]
    measured = emulated.summary.set_index("variant")["iteration_time_s"]
    for name, time_s in measured.items():
        assert simulated[str(name)] == pytest.approx(time_s, rel=0.05), name
