"""A link of real netem is learnt from a probe: its delay, its rate, its limit of packets, and what else it carried."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed.testbed.network.gateway_layout import SHORT_PACKETS_MIN

WANBED = f"{sys.executable} -m wanbed.runner.cli.command_line"
ROOT = Path(__file__).resolve().parents[3]
SECONDS, FRAME_BYTES = 4, 80

# Probes, logs, fits and replays have their own tests; of a real kernel's queue this is the longest.
pytestmark = pytest.mark.soak

EXPERIMENT = """
name: shared
topology:
  datacenters: [{name: east, hosts: 1}, {name: west, hosts: 1}]
  wan: {latency: 20ms, rate: 40Mbit}
compute: {forward: 10ms, backward: 20ms, activation: 512KiB}
clock: virtual
"""


def wanbed(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "wanbed.runner.cli.command_line", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_probe_beside_another_flow_shows_netems_delay_rate_and_limit(tmp_path: Path) -> None:
    kernel_or_skip()
    (tmp_path / "shared.yaml").write_text(EXPERIMENT)
    flow = Path(__file__).with_name("overloading_flow.py")
    beside = [f"--also=west-0 {WANBED} probe --receive", f"--also=east-0 {sys.executable} {flow} west-0 {SECONDS}"]
    probe = f"{WANBED} probe west-0 --seconds {SECONDS} --size {FRAME_BYTES} --train 400 --output log.csv".split()
    wanbed(tmp_path, "exec", "shared.yaml", "east-0", *beside, "--", *probe)
    document = json.loads(wanbed(tmp_path, "learn-link", "log.csv", "--no-cell", "--json"))
    print(json.dumps(document, indent=1))
    link, held_out = document["link"], document["held_out"]
    assert link["base_delay_ns"] == pytest.approx(20e6, rel=0.01)
    assert link["rate_bps"] == pytest.approx(40e6, rel=0.03)
    # netem's limit counts the packets in flight as well.
    in_flight_bytes = 20e-3 * 40e6 / 8
    assert link["buffer_bytes"] == pytest.approx(SHORT_PACKETS_MIN * FRAME_BYTES - in_flight_bytes, rel=0.1)
    errors_ns = {name: each.get("mean_quantile_error_ns") for name, each in held_out.items()}
    assert errors_ns["learnt link"] < errors_ns["constant link"]
