"""The commands as a user types them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.runner.wanbed_command import BUSY_OR_NOT, WANBED, printed, wanbed
from tests.support.testbed.processes import command_line
from tests.support.until import until_within
from wanbed import results
from wanbed.testbed.claims.processes import marked_processes
from wanbed.testbed.claims.registry import claims

EXPERIMENT = """
name: small
topology:
  datacenters: [{name: east, hosts: 2}, {name: west, hosts: 1}]
  wan: {latency: 20ms, rate: 20Mbit}
  intra: {rate: 20Mbit}
compute: {forward: 10ms, backward: 20ms, activation: 128KiB}
training: {microbatches: 4, iterations: 3}
variants:
  - {name: gpipe, schedule: gpipe}
  - {name: "1f1b, two connections", schedule: 1f1b, transport: {connections: 2, window: 1MiB}}
dilation: 1
"""


until = partial(until_within, 150)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("commands") / "small.yaml"
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
    # The file asks for 20 ms each way.
    assert float(done.stdout.rpartition(" = ")[2].split("/")[0]) < 20
    assert done.stderr.startswith("wanbed: NO WAN: ")


def test_exec_shows_what_ran_beside_and_fails_with_it(file: Path, tmp_path: Path) -> None:
    arguments = ["--no-wan", "--also", "west-0 sh -c 'pwd; sleep 0.5; exit 4'", "--", "sh", "-c", "pwd; sleep 60"]
    done = wanbed("exec", file, "east-0", *arguments, status=4, cwd=tmp_path)
    assert done.stdout == f"{tmp_path}\n"
    _, shown, reason = done.stderr.splitlines()
    assert shown == f"west-0: {tmp_path}"
    assert reason.startswith("wanbed: --also: west-0: sh -c ")
    assert reason.endswith(": ended with status 4 before the program on east-0")


@pytest.fixture(scope="module")
def held(file: Path, substrate: str) -> Iterator["subprocess.Popen[str]"]:
    """`wanbed shell` on the file, in another terminal; it ends as it is told."""
    shell = subprocess.Popen(
        [*WANBED, "shell", str(file), "--substrate", substrate],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with shell:
        try:
            assert shell.stderr is not None
            while "up on the" not in (line := shell.stderr.readline()):
                assert line, "the shell ended before its network was up"
            yield shell
            shell.communicate("exit\n", timeout=150)
            assert shell.returncode == 0
        finally:
            shell.kill()


def answered(shell: "subprocess.Popen[str]", command: str, last: str) -> str:
    """What the shell prints when a command is typed, up to the line that has ``last`` in it."""
    assert shell.stdin is not None
    assert shell.stdout is not None
    shell.stdin.write(f"{command}\n")
    shell.stdin.flush()
    text = ""
    while last not in text:
        line = shell.stdout.readline()
        assert line, f"the shell ended after {text}"
        text += line
    return text


def test_shell_is_mininets_prompt_and_exec_joins_it(held: "subprocess.Popen[str]", file: Path) -> None:
    done = wanbed("exec", file, "west-0", "--", "hostname")
    assert done.stdout == "west-0\n"
    assert "which is up already" in done.stderr
    # At once: what is typed while a command runs is that command's.
    text = answered(held, "east-0 hostname\neast-1 ping -c 2 -i 0.05 west-0", "received")
    assert "east-0" in text
    assert "east-1" not in text.split("PING")[0]
    assert "2 received" in text


@pytest.mark.usefixtures("held")
def test_exec_runs_unmodified_programs_on_two_hosts(file: Path) -> None:
    script = (
        f"for attempt in 1 2 3 4 5; do iperf3 --client west-0 --time 1 --json && break; sleep 0.2; done; "
        f"{sys.executable} -c 'import socket; print(socket.gethostname())'"
    )
    done = wanbed("exec", file, "east-0", "--also", "west-0 iperf3 --server", "--", "sh", "-c", script)
    assert '"sum_received"' in done.stdout
    assert done.stdout.rstrip().endswith("east-0")


@pytest.mark.usefixtures("held")
def test_exec_dies_of_a_signal_as_the_program_did(file: Path) -> None:
    wanbed("exec", file, "east-0", "--", "sh", "-c", "kill -TERM $$", status=128 + 15)


def test_programs_of_a_killed_exec_end_on_a_network_that_stays_up(held: "subprocess.Popen[str]", file: Path) -> None:
    argv = [*WANBED, "exec", str(file), "west-0", "--", "sh", "-c", "sleep 300 & echo up; wait"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as joined:
        assert joined.stdout is not None
        assert joined.stdout.readline() == "up\n"
        (identifier,) = identifiers_of(held.pid)
        before = marked_processes(identifier)
        joined.kill()
    until(lambda: len(marked_processes(identifier)) <= len(before) - 2)
    assert "2 received" in answered(held, "east-1 ping -c 2 -i 0.05 west-0", "received")


def test_calibrate_prints_asked_against_measured(file: Path, substrate: str) -> None:
    document = printed("calibrate", file, "--substrate", substrate, status=BUSY_OR_NOT)
    ends = [(link["from"], link["to"]) for link in document["links"]]
    assert ends == [("east", "west"), ("west", "east"), ("east", "east")]
    wan = document["links"][0]
    assert wan["configured"]["rtt_ms"] == 40
    # What else the machine does makes RTTs longer and goodputs less.
    assert wan["measured"]["rtt_ms"] >= 39
    assert 0 < wan["measured"]["goodput_bps"] <= 1.03 * wan["configured"]["goodput_bps"]


@pytest.mark.measures
def test_run_writes_a_run_that_loads_and_a_report(file: Path, substrate: str, tmp_path: Path) -> None:
    one_each = ("--set", "topology.datacenters.0.hosts=1")
    # Status 1 is for links outside tolerance, as on a machine that does something else; rows then say so.
    document = printed(
        "run", file, "--substrate", substrate, "--runs", tmp_path / "runs", *one_each, status=BUSY_OR_NOT
    )
    run = results.load(document["run"])
    assert run.complete
    assert (Path(document["run"]) / "report.html").read_text().startswith("<!DOCTYPE html>")
    rows = {row["variant"]: row for row in document["summary"]}
    assert set(rows) == {"gpipe", "1f1b, two connections"}
    within = bool(run.calibration.within_tolerance.all())
    for row in rows.values():
        assert row["calibrated"] is within
        # Computing alone takes 4 x 30 ms a GPU; the pipeline's fill and the WAN come on top.
        assert row["iteration_time_s"] > 0.12 + 2 * 0.02
        assert 0 < row["gpu_utilization"] < 1
        # Each iteration sends 4 activations east to west and 4 gradients back, and headers.
        payload = 3 * 8 * 128 * 1024
        assert payload < row["wan_bytes"] < 1.2 * payload
        assert row["engine"] == "emulate"
        assert row["clock"] == "real"
        assert row["dilation"] == 1
    assert run.manifest["substrate"]["name"] == substrate
    assert run.manifest["substrate"]["prompt_wakeups"] is os.access("/dev/cpu_dma_latency", os.W_OK)
    assert run.manifest["qdiscs"]["0"]["east wan1"]["classes"]
    samples = run.link_samples[run.link_samples.scope == "link"]
    gaps_ns = samples.groupby(["variant", "source", "destination"]).time_ns.diff().dropna()
    assert gaps_ns.median() <= 100_000_000, "links are sampled at 10 Hz or faster"
    received = run.spans[run.spans.kind == "receive"].groupby("variant").size_bytes.sum()
    assert set(received) == {3 * 8 * 128 * 1024}


@pytest.mark.soak
def test_a_run_that_was_cut_off_is_resumed_without_repeating_what_finished(
    file: Path, substrate: str, tmp_path: Path
) -> None:
    arguments = ["run", str(file), "--substrate", substrate, "--runs", str(tmp_path / "runs"), "--set", "repeats=2"]
    arguments += ["--set", "topology.datacenters.0.hosts=1", "--set", "variants=[{name: gpipe, schedule: gpipe}]"]

    def finished() -> list[Path]:
        return list(tmp_path.glob("runs/*/trials/*/*/repeat-?/trial.json"))

    with subprocess.Popen([*WANBED, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        until(lambda: first.poll() is not None or finished() != [])
        assert first.poll() is None
        first.kill()
    written = {path: path.stat().st_mtime_ns for path in finished()}
    assert len(written) == 1
    document = json.loads(wanbed(*arguments, "--resume", "--json", status=BUSY_OR_NOT).stdout)
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert len(document["summary"]) == 2
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert "complete already" in wanbed(*arguments, "--resume", "--json", status=BUSY_OR_NOT).stderr


def test_an_interrupted_run_takes_everything_down_with_it(file: Path, substrate: str, tmp_path: Path) -> None:
    # Tests run in the background of a shell ignore SIGINT, and so would what they start.
    argv = ["env", "--default-signal=INT", *WANBED, "run", str(file), "--substrate", substrate]
    run = subprocess.Popen(
        [*argv, "--runs", str(tmp_path / "runs")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    mine: list[str] = []

    def programs_run() -> bool:
        mine[:] = identifiers_of(run.pid)
        pids = [pid for identifier in mine for pid in marked_processes(identifier)]
        return any("iperf3 --client" in command_line(pid) for pid in pids)

    until(programs_run)
    run.send_signal(signal.SIGINT)
    _, line = run.communicate(timeout=150)
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
    until(lambda: _ranks_of(mine, "rank-2.json") != [])
    (victim,) = _ranks_of(mine, "rank-2.json")
    os.kill(victim, signal.SIGKILL)
    _, reported = run.communicate(timeout=150)
    assert run.returncode == 4
    failure = [line for line in reported.splitlines() if "trials done" not in line]
    assert len(failure) == 1, reported
    assert "rank" in failure[0]


def _ranks_of(identifier: str, plan: str) -> list[int]:
    lines = {pid: command_line(pid).split() for pid in marked_processes(identifier)}
    return [pid for pid, words in lines.items() if "wanbed.workloads.rank" in words and words[-1].endswith(plan)]
