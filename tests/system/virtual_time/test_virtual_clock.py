"""Commands in virtual time as a user types them, and what becomes of a guest that is stuck, killed or interrupted.

No test here minds what else the machine does: nothing that is asserted depends on how much of it a guest gets.
"""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.wanbed_command import WANBED, wanbed
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed import results
from wanbed.testbed.virtual_time.guest import GuestError, run_inside
from wanbed.testbed.virtual_time.guest_boot import GuestCommand
from wanbed.testbed.virtual_time.guest_place import choose_place
from wanbed.testbed.virtual_time.kernel_cache import VirtualKernel, virtual_kernel
from wanbed.testbed.virtual_time.watchdog import PATIENT, Patience, Watch

EXPERIMENT = """
topology:
  datacenters: [{name: east, hosts: 1}, {name: west, hosts: 1}]
  wan: {latency: 20ms, rate: 50Mbit}
  intra: {latency: 50us, rate: 100Mbit}
compute: {forward: 20ms, backward: 40ms, activation: 128KiB}
training: {microbatches: 2, iterations: 2}
clock: virtual
"""


@pytest.fixture(scope="module")
def kernel() -> VirtualKernel:
    return kernel_or_skip()


@pytest.fixture
def file(kernel: VirtualKernel, tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(EXPERIMENT)
    return path


def guests(marker: str) -> list[int]:
    """Processes of guests whose command names ``marker``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in words and b"time-travel" in words:
                found.append(int(entry.name))
    return found


def soon(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()


def inside(kernel: VirtualKernel, script: str, *, watch: Watch = PATIENT, **options: Any) -> tuple[int, str, str]:
    out, error = io.BytesIO(), io.BytesIO()
    command = GuestCommand(["sh", "-c", script], **options)
    status = run_inside(command, kernel, choose_place(), standard_output=out, standard_error=error, watch=watch)
    return status, out.getvalue().decode(), error.getvalue().decode()


def test_a_program_inside_has_the_folder_the_environment_its_input_and_its_status(
    kernel: VirtualKernel, tmp_path: Path
) -> None:
    status, out, error = inside(
        kernel,
        'pwd; echo "$GREETING"; cat; echo lost >&2; echo kept > result; exit 7',
        folder=tmp_path,
        environment={**os.environ, "GREETING": "it's $1"},
        standard_input=b"from outside\n",
    )
    assert (status, out, error) == (7, f"{tmp_path}\nit's $1\nfrom outside\n", "lost\n")
    assert (tmp_path / "result").read_text() == "kept\n"


def test_an_hour_takes_a_moment_and_a_program_dies_of_a_signal_as_it_does(kernel: VirtualKernel) -> None:
    begun = time.monotonic()
    status, out, _ = inside(kernel, "date +%s; sleep 36000; date +%s; kill -TERM $$")
    before, after = map(int, out.split())
    assert after - before == pytest.approx(36000, abs=2)
    assert time.monotonic() - begun < 3600
    assert status == 128 + signal.SIGTERM


@pytest.mark.parametrize("spin", ["while True: pass", "import os\nwhile True: os.getppid()"])
def test_a_guest_that_spins_is_reported_with_the_process_that_does(kernel: VirtualKernel, spin: str) -> None:
    with pytest.raises(
        GuestError, match=r"stuck, it computes and does not wait, .*: python[^,]*while True[^,]*$"
    ) as caught:
        inside(kernel, f"sleep 5 & {sys.executable} -c '{spin}'", watch=Watch(Patience(spin_cpu_s=2)))
    assert "sleep 5" not in str(caught.value).partition(":")[2]
    assert "\n" not in str(caught.value)


def test_a_guest_in_which_all_wait_is_reported_with_those_that_do(kernel: VirtualKernel) -> None:
    each_for_the_other = "import os, socket; a, b = socket.socketpair(); (a if os.fork() else b).recv(1)"
    with pytest.raises(GuestError, match=r"stuck, all wait, and nothing happens: ") as caught:
        inside(
            kernel, f"sleep 5 & {sys.executable} -c '{each_for_the_other}'", watch=Watch(Patience(quiet_virtual_s=3600))
        )
    text = str(caught.value).partition("happens: ")[2].split("), ")
    assert [each.partition(" ")[0] for each in text] == [Path(sys.executable).name] * 2
    assert "\n" not in str(caught.value)


def test_a_kernel_that_dies_is_reported_with_its_last_word(kernel: VirtualKernel) -> None:
    with pytest.raises(GuestError, match=r"^virtual time ended: its kernel died: Kernel panic"):
        inside(kernel, "echo c > /proc/sysrq-trigger")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_a_guest_whose_command_was_killed_or_interrupted(
    file: Path, tmp_path: Path, number: signal.Signals
) -> None:
    marker = f"wanbed-test-{os.getpid()}-{number}"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / marker)}
    # A cache whose path names this test, by which its guest is told from others.
    (tmp_path / marker).symlink_to(virtual_kernel().program.parents[3])
    run = subprocess.Popen(
        ["env", "--default-signal=INT", *WANBED, "exec", str(file), "east-0", "--", "sh", "-c", "while :; do :; done"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert soon(lambda: len(guests(marker)) > 3), "programs run inside"
    run.send_signal(number)
    _, text = run.communicate(timeout=60)
    assert soon(lambda: not guests(marker))
    if number == signal.SIGINT:
        assert run.returncode == 128 + signal.SIGINT
        assert text.decode() == "wanbed: interrupted, nothing of it is left running\n"


def test_exec_passes_everything_through_and_links_change_meanwhile(file: Path, tmp_path: Path) -> None:
    script = "hostname; pwd; cat; ping -c 4 -i 0.5 west-0; exit 9"
    changes = "topology.wan.events=[{at: 700ms, latency: 40ms}]"
    arguments = ["--set", changes, "--also", "west-0 pwd", "--", "sh", "-c", script]
    done = wanbed("exec", file, "east-0", *arguments, input="given\n", status=9, cwd=tmp_path)
    assert done.stdout.splitlines()[:3] == ["east-0", str(tmp_path), "given"]
    assert done.stderr == f"west-0: {tmp_path}\n"
    # Each way a frame takes some microseconds of the line beside the latency. Half a second lies between echoes.
    assert re.findall(r"time=([\d.]+) ms", done.stdout) == ["40.0", "40.0", "80.0", "80.0"]


def test_a_run_that_was_killed_is_resumed_and_says_that_its_clock_was_virtual(
    file: Path, kernel: VirtualKernel, tmp_path: Path
) -> None:
    arguments = ["run", file, "--set", "repeats=4", "--runs", tmp_path / "runs"]

    def finished() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/trials/*/*/repeat-?/trial.json")}

    with subprocess.Popen(
        [*WANBED, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as killed:
        assert soon(lambda: bool(finished()) or killed.poll() is not None)
        killed.kill()
    written = finished()
    assert 1 <= len(written) < 4
    document = json.loads(wanbed(*arguments, "--resume", "--json").stdout)
    assert written.items() < finished().items(), "what had finished is not repeated"
    assert "complete already" in wanbed(*arguments, "--resume").stderr
    assert [str(path) for path in (tmp_path / "runs").iterdir()] == [document["run"]]

    run = results.load(document["run"])
    assert run.complete
    assert len(document["summary"]) == 4
    for row in document["summary"]:
        assert (row["clock"], row["engine"], row["dilation"], row["calibrated"]) == ("virtual", "emulate", 1, True)
        # Two stages compute 60 ms on each of 2 microbatches; an activation and a gradient cross the WAN.
        assert row["iteration_time_s"] > 3 * 0.06 + 2 * 0.02
    assert run.manifest["virtual_time"] == {
        "kernel": kernel.record.release,
        "configuration_hash": kernel.record.configuration_hash,
    }
    assert run.manifest["host"]["kernel"] == os.uname().release
    assert run.manifest["substrate"]["kernel"] == kernel.record.release
    assert run.manifest["clock_source"] == "time-travel-clock"
    assert "time-travel" not in str(run.manifest["host"])
    assert kernel.record.configuration_hash in Path(document["run"], "report.html").read_text()


def test_a_network_that_stays_the_same_in_a_sweep_is_calibrated_once_and_another_one_again(
    file: Path, tmp_path: Path
) -> None:
    swept = "sweep={topology.wan.latency: [20ms, 10ms], training.microbatches: [1, 2]}"
    done = wanbed("run", file, "--set", swept, "--runs", tmp_path / "runs", "--json")
    run = results.load(json.loads(done.stdout)["run"])
    points = run.calibration.groupby("sweep_point")
    assert points.calibrated_at_point.unique().map(list).tolist() == [[0], [0], [2], [2]]
    assert done.stderr.count("measuring the links at topology.wan.latency=") == 2
    assert points.measured_rtt_ms.max().tolist() == pytest.approx([40, 40, 20, 20], abs=0.01)
    assert run.summary.calibrated.all()
    # Each has what its kernels reported of its own network.
    delays = [str(run.manifest["qdiscs"][str(point)]) for point in range(4)]
    assert delays[0] == delays[1] != delays[2] == delays[3]


def test_calibrate_measures_the_links_exactly(file: Path) -> None:
    document = json.loads(wanbed("calibrate", file, "--json").stdout)
    assert document["within_tolerance"] is True
    assert document["links"][0]["measured"]["rtt_ms"] == pytest.approx(40, abs=0.01)
