"""Two jobs train at once over a Ray cluster, two hosts of each on each of two machines."""

import json
from pathlib import Path

from results import load
from tests.support.ray.ray_cluster import RayCluster
from tests.support.ray.ray_fixture import two_nodes  # noqa: F401 - a fixture
from tests.support.runner.two_jobs import two_jobs

MACHINES = {"east", "west"}


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
            last_ns = own.end_ns.max()
            assert 0 < trial.while_all_ran_ns <= last_ns
        else:
            assert trial.while_all_ran_ns is None
    beside = [set(spans[spans.variant == name].host.unique()) for name in ("ours beside theirs", "theirs beside ours")]
    assert not beside[0] & beside[1]
