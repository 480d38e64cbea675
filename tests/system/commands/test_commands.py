"""The commands as a user types them."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import results
from testbed.claims.processes import marked_processes
from testbed.claims.registry import claims
from tests.support.runner.wanbed_command import BUSY_OR_NOT, WANBED, wanbed

EXPERIMENT = """
name: small
topology:
  datacenters: [{name: east, hosts: 2}, {name: west, hosts: 1}]
  wan: {latency: 50ms, rate: 100Mbit}
compute: {forward: 10ms, backward: 20ms, activation: 512KiB}
training: {microbatches: 4, iterations: 3}
variants:
  - {name: gpipe, schedule: gpipe}
  - {name: "1f1b, two connections", schedule: 1f1b, transport: {connections: 2, window: 1MiB}}
dilation: 1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(EXPERIMENT)
    return path


def identifiers_of(pid: int) -> list[str]:
    """Testbeds that a process owns."""
    return [claim.record.identifier for claim in claims() if claim.record.owner_pid == pid]


def test_doctor_names_the_substrate_and_why() -> None:
    document = json.loads(wanbed("doctor", "--json").stdout)
    assert document["netem"]["substrate"] in {"kernel", "guest"}
    assert document["netem"]["reason"]
    assert document["missing"] == []


def test_exec_passes_output_and_exit_status_through(file: Path, substrate: str) -> None:
    script = "hostname; cat; echo lost >&2; ping -c 3 -i 0.05 -q west-0 | grep received; exit 7"
    done = wanbed(
        "exec", file, "east-1", "--substrate", substrate, "--", "sh", "-c", script, input="from outside\n", status=7
    )
    assert done.stdout.splitlines()[:2] == ["east-1", "from outside"]
    assert "3 received" in done.stdout
    assert "lost" in done.stderr


def test_exec_without_a_wan_reaches_hosts_that_nothing_delays_and_says_so(file: Path) -> None:
    done = wanbed("exec", file, "east-1", "--no-wan", "--", "ping", "-c", "5", "-i", "0.05", "-q", "west-0")
    assert "5 received" in done.stdout
    # The file asks for 50 ms each way.
    shortest_ms = float(done.stdout.rpartition(" = ")[2].split("/")[0])
    assert shortest_ms < 25
    assert done.stderr.startswith("wanbed: NO WAN: ")


def test_exec_runs_unmodified_programs_on_two_hosts(file: Path, substrate: str) -> None:
    script = (
        f"for attempt in 1 2 3 4 5; do iperf3 --client west-0 --time 1 --json && break; sleep 0.2; done; "
        f"{sys.executable} -c 'import socket; print(socket.gethostname())'"
    )
    arguments = ["--substrate", substrate, "--also", "west-0 iperf3 --server", "--", "sh", "-c", script]
    done = wanbed("exec", file, "east-0", *arguments)
    assert '"sum_received"' in done.stdout
    assert done.stdout.rstrip().endswith("east-0")


def test_exec_dies_of_a_signal_as_the_program_did(file: Path, substrate: str) -> None:
    wanbed("exec", file, "east-0", "--substrate", substrate, "--", "sh", "-c", "kill -TERM $$", status=128 + 15)


@pytest.fixture
def held(file: Path, substrate: str) -> Iterator["subprocess.Popen[str]"]:
    """`wanbed shell` on the file, in another terminal."""
    shell = subprocess.Popen(
        [*WANBED, "shell", str(file), "--substrate", substrate],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert shell.stderr is not None
    while "up on the" not in (line := shell.stderr.readline()):
        assert line, "the shell ended before its network was up"
    yield shell
    shell.kill()
    shell.communicate()


def test_shell_is_mininets_prompt_and_exec_joins_it(held: "subprocess.Popen[str]", file: Path) -> None:
    done = wanbed("exec", file, "west-0", "--", "hostname")
    assert done.stdout == "west-0\n"
    assert "which is up already" in done.stderr
    text, _ = held.communicate("east-0 hostname\neast-1 ping -c 2 -i 0.05 west-0\nexit\n", timeout=30)
    assert "east-1" not in text.split("PING")[0]
    assert "2 received" in text
    assert held.returncode == 0


def test_programs_of_a_killed_exec_end_on_a_network_that_stays_up(held: "subprocess.Popen[str]", file: Path) -> None:
    argv = [*WANBED, "exec", str(file), "west-0", "--", "sh", "-c", "sleep 300 & echo up; wait"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as joined:
        assert joined.stdout is not None
        assert joined.stdout.readline() == "up\n"
        (identifier,) = identifiers_of(held.pid)
        before = marked_processes(identifier)
        joined.kill()
    deadline = time.monotonic() + 30
    while len(marked_processes(identifier)) > len(before) - 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    text, _ = held.communicate("east-1 ping -c 2 -i 0.05 west-0\nexit\n", timeout=30)
    assert "2 received" in text


def test_exec_shows_what_ran_beside_and_fails_with_it(file: Path, tmp_path: Path) -> None:
    arguments = ["--no-wan", "--also", "west-0 sh -c 'pwd; sleep 0.5; exit 4'", "--", "sh", "-c", "pwd; sleep 60"]
    done = wanbed("exec", file, "east-0", *arguments, status=4, cwd=tmp_path)
    assert done.stdout == f"{tmp_path}\n"
    _, shown, reason = done.stderr.splitlines()
    assert shown == f"west-0: {tmp_path}"
    assert reason.startswith("wanbed: --also: west-0: sh -c ")
    assert reason.endswith(": ended with status 4 before the program on east-0")


@pytest.mark.measures
def test_calibrate_prints_asked_against_measured(file: Path, substrate: str) -> None:
    document = json.loads(wanbed("calibrate", file, "--substrate", substrate, "--json").stdout)
    assert document["within_tolerance"] is True
    ends = [(link["from"], link["to"]) for link in document["links"]]
    assert ends == [("east", "west"), ("west", "east"), ("east", "east")]
    wan = document["links"][0]
    assert wan["configured"]["rtt_ms"] == 100
    assert wan["measured"]["rtt_ms"] == pytest.approx(100, abs=2)
    assert wan["measured"]["goodput_bps"] == pytest.approx(wan["configured"]["goodput_bps"], rel=0.03)


@pytest.mark.measures
def test_run_writes_a_run_that_loads_and_a_report(file: Path, substrate: str, tmp_path: Path) -> None:
    done = wanbed("run", file, "--substrate", substrate, "--runs", tmp_path / "runs", "--json")
    document = json.loads(done.stdout)
    run = results.load(document["run"])
    assert run.complete
    assert (Path(document["run"]) / "report.html").read_text().startswith("<!DOCTYPE html>")
    rows = {row["variant"]: row for row in document["summary"]}
    assert set(rows) == {"gpipe", "1f1b, two connections"}
    for row in rows.values():
        assert row["calibrated"] is True
        # Computing alone takes 4 x 30 ms a GPU; the pipeline's fill and the WAN come on top.
        assert row["iteration_time_s"] > 0.12 + 2 * 0.05
        assert 0 < row["gpu_utilization"] < 1
        # Each iteration sends 4 activations east to west and 4 gradients back, and headers.
        payload = 3 * 8 * 512 * 1024
        assert payload < row["wan_bytes"] < 1.2 * payload
        assert row["engine"] == "emulate"
        assert row["clock"] == "real"
        assert row["dilation"] == 1
    assert run.manifest["substrate"]["name"] == substrate
    assert run.manifest["qdiscs"]["0"]["east wan1"]["classes"]
    samples = run.link_samples[run.link_samples.scope == "link"]
    gaps_ns = samples.groupby(["variant", "source", "destination"]).time_ns.diff().dropna()
    assert gaps_ns.median() <= 100_000_000, "links are sampled at 10 Hz or faster"
    received = run.spans[run.spans.kind == "receive"].groupby("variant").size_bytes.sum()
    # Two boundaries, one of them inside a datacenter.
    assert set(received) == {2 * 3 * 8 * 512 * 1024}


def test_a_run_that_was_cut_off_is_resumed_without_repeating_what_finished(
    file: Path, substrate: str, tmp_path: Path
) -> None:
    arguments = ["run", str(file), "--substrate", substrate, "--runs", str(tmp_path / "runs"), "--set", "repeats=3"]
    arguments += ["--set", "topology.datacenters.0.hosts=1"]
    first = subprocess.Popen([*WANBED, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 90
    while not (finished := list(tmp_path.glob("runs/*/trials/*/*/repeat-?/trial.json"))):
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    finished = list(tmp_path.glob("runs/*/trials/*/*/repeat-?/trial.json"))
    wanbed("clean")
    written = {path: path.stat().st_mtime_ns for path in finished}
    document = json.loads(wanbed(*arguments, "--resume", "--json", status=BUSY_OR_NOT).stdout)
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert len(document["summary"]) == 6
    assert {path: path.stat().st_mtime_ns for path in finished} == written
    again = wanbed(*arguments, "--resume", "--json", status=BUSY_OR_NOT)
    assert "complete already" in again.stderr


def test_an_interrupted_run_takes_everything_down_with_it(file: Path, substrate: str, tmp_path: Path) -> None:
    # Tests run in the background of a shell ignore SIGINT, and so would what they start.
    argv = ["env", "--default-signal=INT", *WANBED, "run", str(file), "--substrate", substrate]
    run = subprocess.Popen(
        [*argv, "--runs", str(tmp_path / "runs")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 30
    while not (mine := identifiers_of(run.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(3)
    run.send_signal(signal.SIGINT)
    _, line = run.communicate(timeout=30)
    assert run.returncode == 128 + signal.SIGINT, line
    assert not identifiers_of(run.pid)
    assert not any(marked_processes(identifier) for identifier in mine)


def test_a_rank_that_dies_ends_the_run_with_one_line(file: Path, substrate: str, tmp_path: Path) -> None:
    """As the kernel ends a process when memory runs out."""
    run = subprocess.Popen(
        [
            *[*WANBED, "run", str(file), "--substrate", substrate, "--runs", str(tmp_path / "runs")],
            *["--set", "training.iterations=2000"],
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stderr is not None
    while "running: gpipe" not in (line := run.stderr.readline()):
        assert line, "the run ended before its first trial"
    (mine,) = identifiers_of(run.pid)
    victim = _rank_of(mine, "rank-2.json")
    subprocess.run(["kill", "-9", str(victim)], check=True)
    start = time.monotonic()
    _, reported = run.communicate(timeout=60)
    assert time.monotonic() - start < 20
    assert run.returncode == 4
    failure = [line for line in reported.splitlines() if "trials done" not in line]
    assert len(failure) == 1, reported
    assert "rank" in failure[0]


def _rank_of(identifier: str, plan: str) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    marked = f"={identifier}".encode() in (entry / "environ").read_bytes()
                except OSError:
                    continue
                if marked and b"workloads.rank" in words and words[-2].endswith(plan.encode()):
                    return int(entry.name)
        time.sleep(0.05)
    raise AssertionError("the rank never started")
