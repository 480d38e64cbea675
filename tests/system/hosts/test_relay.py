"""The relay, as users who may do nothing: it carries a calibrated WAN, and a killed command leaves nothing of it."""

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.until import until_within
from wanbed import results
from wanbed.results.reading.validity import MODELLED_TCP
from wanbed.testbed.claims.processes import marked_processes
from wanbed.testbed.claims.registry import state_root
from wanbed.testbed.relay.relay_config import RelayConfig

ROOT = Path(__file__).resolve().parents[3]
WITHOUT_RIGHTS = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
USERS = {0: WITHOUT_RIGHTS, 1000: [*WITHOUT_RIGHTS, "--reuid=1000", "--regid=1000", "--clear-groups"]}
PATIENCE_S = 240
ATTEMPTS = 3
"""A machine that does something else meanwhile may disturb a measurement."""

# Long enough that starting Python on a slow machine is a small part of the trial.
EXPERIMENT = """
topology:
  datacenters: [{name: east, hosts: 1}, {name: west, hosts: 2}]
  wan: {latency: 20ms, rate: 100Mbit, node_pair_rate: 80Mbit}
compute: {forward: 5ms, backward: 10ms, activation: 256KiB}
training: {microbatches: 4, iterations: 40, warmup: 1}
dilation: 1
"""


# Both have no right that the relay could use.
@pytest.fixture(
    params=[pytest.param(0, id="root without capabilities", marks=pytest.mark.soak), pytest.param(1000, id="uid 1000")]
)
def uid(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def home(uid: int) -> Iterator[Path]:
    """A folder of the user's own; pytest's are closed to others than root."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "experiment.yaml").write_text(EXPERIMENT)
        os.chown(folder, uid, uid)
        yield Path(folder)


def command(uid: int, home: Path, *arguments: str) -> list[str]:
    """The command line of wanbed as that user, who can reach its files wherever they are."""
    held = home / "python"
    prefix = Path(sys.base_prefix)
    closed = next((each for each in reversed(prefix.parents) if not each.stat().st_mode & stat.S_IXOTH), None)
    steps = [f"cd {home}"]
    if closed is not None:
        steps = [
            f"mkdir -p {held} && mount --bind {prefix} {held}",
            f"mount -t tmpfs -o mode=755 tmpfs {closed} && mkdir -p {prefix} && mount --bind {held} {prefix}",
            *steps,
        ]
    environment = [f"HOME={home}", f"PYTHONPATH={ROOT}", "PYTHONDONTWRITEBYTECODE=1"]
    program = [*USERS[uid], "env", *environment, sys.executable, "-m", "wanbed", *arguments]
    return ["unshare", "--mount", "sh", "-c", f"{' && '.join(steps)} && exec {shlex.join(program)}"]


def listening() -> set[str]:
    """The addresses at which anybody listens."""
    lines = subprocess.run(["ss", "-Hltn"], check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.split()[3].rpartition(":")[0] for line in lines}


until = partial(until_within, PATIENCE_S)


@pytest.mark.soak
@pytest.mark.measures
def test_a_run_over_the_relay_is_calibrated_and_says_that_its_tcp_is_modelled(uid: int, home: Path) -> None:
    argv = command(uid, home, "run", "experiment.yaml", "--substrate", "relay", "--json")
    for _ in range(ATTEMPTS):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        if "OUTSIDE TOLERANCE" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    assert f"wanbed: {MODELLED_TCP}" in done.stderr.splitlines()
    run = results.load(home / Path(json.loads(done.stdout)["run"]))
    assert run.manifest["substrate"]["name"] == "relay"
    assert run.manifest["substrate"]["tcp"] == "modelled"
    assert run.calibration["within_tolerance"].all()
    assert {"measured_share_bps", "measured_both_ways_ms"} <= set(run.calibration)
    (trial,) = run.trials
    assert 0 < trial.facts["machine_load"]["network"] < 1
    assert run.tcp_samples.empty
    carried = run.link_samples.groupby(["source", "destination"])["wire_bytes"].max()
    assert carried["east", "west"] >= 3 * 4 * 262_144


@pytest.mark.parametrize("program", ["relay_process", pytest.param("wanbed.workloads.rank", marks=pytest.mark.soak)])
def test_nothing_is_left_of_a_killed_run(uid: int, home: Path, program: str) -> None:
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    argv = command(uid, home, "run", "experiment.yaml", "--substrate", "relay", "--set", "training.iterations=400")
    with subprocess.Popen(argv, **options) as killed:

        def own_claims() -> list[tuple[Path, str]]:
            # Read here, because a user sees no testbeds of others.
            found = state_root(uid).glob("[0-9]*/record.json")
            records = [(path.parent, json.loads(path.read_text())) for path in found]
            return [(folder, record["identifier"]) for folder, record in records if record["owner_pid"] == killed.pid]

        def runs() -> bool:
            assert killed.poll() is None, "the command was over before it was killed"
            pids = [pid for _, identifier in own_claims() for pid in marked_processes(identifier)]
            return any(program.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids)

        until(runs)
        ((folder, identifier),) = own_claims()
        config = RelayConfig.read(folder / "relay.json")
        killed.send_signal(signal.SIGKILL)
    until(lambda: not marked_processes(identifier))
    until(lambda: not folder.exists())
    assert not listening() & {*config.own.values(), *config.reached_at.values()}
