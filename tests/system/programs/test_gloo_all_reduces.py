"""Gloo itself, called by torch in four processes, takes as long in virtual time as is simulated of it."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runner.wanbed_command import wanbed
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulator.variant_simulation import simulate_variant

PROGRAM = Path(__file__).with_name("gloo_all_reduces.py")
HOSTS = 4
MIB = 2**20


def document(latency: str, rate: str, size_bytes: int) -> dict[str, Any]:
    return {
        "topology": {"datacenters": [{"name": "lab", "hosts": HOSTS}], "intra": {"latency": latency, "rate": rate}},
        "compute": {"forward": "1us", "backward": "1us", "activation": "1B", "gradient": f"{size_bytes}B"},
        "training": {"stages": 1, "pipelines": HOSTS, "microbatches": 1, "iterations": 3, "warmup": 1},
        "variants": [{"name": "sums", "schedule": "dp", "transport": {"all_reduce": "gloo"}}],
    }


def simulated_s(latency: str, rate: str, size_bytes: int) -> float:
    written = {"engine": "simulate", **document(latency, rate, size_bytes)}
    (point,) = parse_experiment(written, "file", Path()).points()
    (variant,) = point.variants
    return simulate_variant(point.topology, variant, point.iterations(variant)).iteration_time_ns(1) / 1e9


def measured_s(latency: str, rate: str, sizes_bytes: tuple[int, ...], folder: Path) -> dict[int, float]:
    """How long Gloo's last all-reduce of each size took in virtual time."""
    kernel_or_skip()
    file = folder / "network.yaml"
    file.write_text(yaml.safe_dump({**document(latency, rate, MIB), "clock": "virtual"}))
    sizes = " ".join(map(str, sizes_bytes))
    commands = [f"{sys.executable} {PROGRAM} {rank} {HOSTS} lab-0 {sizes}" for rank in range(HOSTS)]
    beside = [word for rank in range(1, HOSTS) for word in ("--also", f"lab-{rank} {commands[rank]}")]
    done = wanbed("exec", file, "lab-0", *beside, "--", *commands[0].split())
    rows = [line.split() for line in done.stdout.splitlines()]
    return {int(size_bytes): float(times[-1]) for size_bytes, *times in rows}


def check(latency: str, rate: str, sizes_bytes: tuple[int, ...], folder: Path) -> None:
    measured = measured_s(latency, rate, sizes_bytes, folder)
    simulated = {size_bytes: simulated_s(latency, rate, size_bytes) for size_bytes in sizes_bytes}
    assert measured == pytest.approx(simulated, rel=0.05)


def test_gloo_takes_as_long_as_simulated(tmp_path: Path) -> None:
    # A round trip is longer than a segment of the one takes, and half of it than one of the other.
    check("5ms", "500Mbit", (MIB, 16 * MIB), tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("latency", ["1ms", "5ms", "20ms"])
@pytest.mark.parametrize("rate", ["100Mbit", "1Gbit", "5Gbit"])
def test_gloo_takes_as_long_as_simulated_over_many_networks(latency: str, rate: str, tmp_path: Path) -> None:
    check(latency, rate, (MIB, 16 * MIB, 64 * MIB), tmp_path)
