"""Flows in the background share an emulated WAN with training, in virtual time."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runner.background import with_background
from tests.support.runner.called_wanbed import run_here
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulator.variant_simulation import simulate_variant

PAYLOAD_SHARE = {"backup": 1448 / 1514, "stream": 1472 / 1514}


def test_a_bulk_flow_shares_the_trunk_and_all_that_it_sends_is_counted(tmp_path: Path) -> None:
    kernel_or_skip()
    document = with_background(
        {"name": "backup", "from": "east", "to": "west", "connections": 2},
        {"name": "stream", "from": "west", "to": "east", "protocol": "udp", "rate": "20Mbit"},
        variants=[{"name": "gpipe", "schedule": "gpipe", "transport": {"connections": "auto"}}],
        compute={"forward": "10ms", "backward": "10ms", "activation": "1MiB"},
    )
    run = run_here(yaml.safe_dump({**document, "clock": "virtual"}), tmp_path)
    (time_s,) = run.summary["iteration_time_s"]
    counters = run.link_samples[run.link_samples["scope"] == "background"]
    received = run.background_samples
    for name, share in PAYLOAD_SHARE.items():
        own = received[received["flow"] == name]
        payload = own.groupby("connection")["received_bytes"].max().sum()
        wire = counters[counters["source"] == own["source"].iloc[0]]["wire_bytes"].max()
        assert payload / wire == pytest.approx(share, rel=0.01)
    (point,) = parse_experiment({"engine": "simulate", **document}, "file", tmp_path).points()
    (variant,) = point.variants
    simulation = simulate_variant(point.topology, variant, point.iterations(variant))
    assert time_s == pytest.approx(simulation.iteration_time_ns(1) / 1e9, rel=0.05)


BESIDE: dict[str, dict[str, Any]] = {
    "fail": {"fail": [{"rank": 1, "at": "600ms"}], "recovery": "restart"},
    "prefill": {
        "prefill": {
            "trace": "poisson",
            "rate": "5/s",
            "prompt": 256,
            "model": "llama-8b",
            "depth": 1,
            "slo": "10s",
            "kv": "2KiB",
            "activation": "128B",
        },
        "variants": [{"name": "greedy", "schedule": "gpipe", "prefill": "greedy"}],
    },
}


@pytest.mark.soak
@pytest.mark.parametrize("section", ["fail", "prefill"])
def test_flows_run_beside_failures_and_prefill_until_the_end(tmp_path: Path, section: str) -> None:
    kernel_or_skip()
    document = with_background(
        {"name": "backup", "from": "east", "to": "west", "rate": "20Mbit"},
        compute={"forward": "20ms", "backward": "40ms", "activation": "64KiB"},
        clock="virtual",
        **BESIDE[section],
    )
    if section == "prefill":
        for datacenter in document["topology"]["datacenters"]:
            datacenter["serving_hosts"] = 1
    run = run_here(yaml.safe_dump(document), tmp_path)
    assert run.summary["outcome"].tolist() == (["recovered"] if section == "fail" else [None])
    assert bool(len(run.prefill_requests)) == (section == "prefill")
    received = run.background_samples
    begin_ns, end_ns = received[received["received_bytes"] > 0]["time_ns"].min(), received["time_ns"].max()
    assert end_ns >= run.spans["end_ns"].max() - 100_000_000
    goodput_bps = received["received_bytes"].max() * 8e9 / (end_ns - begin_ns)
    assert goodput_bps == pytest.approx(20e6 * PAYLOAD_SHARE["backup"], rel=0.1)
