"""Jobs that train at once, and links that change and are shared with other traffic, over two machines of Ray's."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.present import present
from tests.support.ray.ray_cluster import (
    RayCluster,
    two_nodes,  # noqa: F401 - a fixture
)
from tests.support.runner.background import TO_WEST, with_background
from tests.support.runner.two_jobs import two_jobs
from wanbed.results import load

# The witness of a rack over Ray is test_rack_on_ray.py.
pytestmark = pytest.mark.soak

MACHINES = {"east", "west"}
STEP_NS = 300_000_000
EXPERIMENT: dict[str, Any] = with_background(
    {**TO_WEST, "name": "bulk", "connections": 2, "rate": "30Mbit"},
    {**TO_WEST, "name": "datagrams", "from": "west", "to": "east", "protocol": "udp", "rate": "8Mbit"},
    # Without netem only trunks are shaped: the machines may lack it.
    wan={"latency": "100us", "rate": "80Mbit", "events": [{"at": "300ms", "rate": "60Mbit"}]},
    training={"stages": 2, "microbatches": 4, "iterations": 4, "warmup": 1},
    engine="rack",
    dilation=1,
)


def test_jobs_at_once_are_on_one_time_line_each_with_its_own_figures(
    two_nodes: RayCluster,  # noqa: F811
    tmp_path: Path,
) -> None:
    document = two_jobs(
        rate="1Gbit",
        compute={"forward": "5ms", "backward": "10ms", "activation": "64KiB", "gradient": "128KiB"},
        engine="rack",
    )
    # The machines may lack netem: nearly nothing is to be emulated.
    document["topology"]["wan"] = {"latency": "100us"}
    run = ["tests.support.ray.unshaped_run", two_nodes.address, str(tmp_path / "runs"), json.dumps(document)]
    done = two_nodes.run_driver("-m", *run, "hosts_per_machine=4", timeout_s=240)
    assert done.returncode == 0, done.stderr
    stored = load(Path(done.stdout.splitlines()[-1]))
    trials = {trial.variant: trial for trial in stored.trials}
    assert trials.keys() == {"ours", "theirs", "ours beside theirs", "theirs beside ours"}
    spans = stored.spans
    for name, trial in trials.items():
        assert trial.facts["clocks"].keys() == MACHINES
        own = spans[spans.variant == name]
        assert own.groupby(["pipeline", "stage"]).ngroups == 4
        assert set(own.host.unique()) <= {f"{place}-{number}" for place in MACHINES for number in range(4)}
        if " beside " in name:
            # It is the end of one of the jobs, on the time line of this one.
            assert 0 < present(trial.while_all_ran_ns) <= own.end_ns.max()
        else:
            assert trial.while_all_ran_ns is None
    beside = [set(spans[spans.variant == name].host.unique()) for name in ("ours beside theirs", "theirs beside ours")]
    assert not beside[0] & beside[1]


def test_links_change_and_are_shared_as_on_one_machine(two_nodes: RayCluster, tmp_path: Path) -> None:  # noqa: F811
    run = ["tests.support.ray.unshaped_run", two_nodes.address, str(tmp_path / "runs"), json.dumps(EXPERIMENT)]
    done = two_nodes.run_driver("-m", *run, "trunks", timeout_s=240)
    assert done.returncode == 0, done.stderr
    stored = load(Path(done.stdout.splitlines()[-1]))
    # The hosts of flows take no machine of their own.
    assert stored.manifest["rack_hosts"]["0"] == {
        "east": ["east-0", "east-background-0", "east-background-1"],
        "west": ["west-0", "west-background-0", "west-background-1"],
    }
    assert {*stored.calibration[stored.calibration.scope == "wan"].condition} == {"0ns", "300ms"}
    (trial,) = stored.trials
    changes = stored.link_changes.sort_values("due_ns")
    for source in ("east", "west"):
        first, then = changes[changes.source == source].to_dict("records")
        assert (first["rate_bps"], then["rate_bps"]) == (80e6, 60e6)
        assert then["due_ns"] - first["due_ns"] == STEP_NS
        # On machines with one clock it is never early, but for what is stated.
        assert then["applied_ns"] >= then["due_ns"] - trial.facts["link_change_clock_error_ns"]
    assert trial.facts["link_change_clock_error_ns"] > 0
    begun_ns = changes.due_ns.min()
    # Ranks and flows begin with the links, at one instant.
    assert stored.spans.start_ns.min() >= begun_ns - trial.facts["link_change_clock_error_ns"]
    samples = stored.background_samples
    for flow, connections in (("bulk", 2), ("datagrams", 1)):
        rows = samples[samples.flow == flow].sort_values("time_ns")
        assert rows.connection.nunique() == connections
        assert rows[rows.time_ns < begun_ns].received_bytes.max() == 0
        carried = rows.groupby("connection").received_bytes.max().sum()
        lasted_s = (rows.time_ns.max() - begun_ns) / 1e9
        offered_bps = {"bulk": 30e6, "datagrams": 8e6}[flow]
        assert 0.5 * offered_bps < carried * 8 / lasted_s < 1.05 * offered_bps
    assert {*stored.link_samples.scope} >= {"link", "background"}
    assert samples.time_ns.max() >= stored.spans.end_ns.max() - 10**9
