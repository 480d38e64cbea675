"""Run the commands on machines that cannot emulate, so that errors are found before any bring-up."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runner.commands_here import called, printed, refusal, wanbed
from tests.support.runner.small_experiment import SMALL, small
from wanbed.results.records.run_store import RunStore, TrialRecord
from wanbed.results.records.span_log import RankPlace, Span, SpanLogContents
from wanbed.results.records.trial_id import TrialId
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.runs.run_folder import begin_run
from wanbed.testbed.substrate import probe
from wanbed.testbed.substrate.offer import GUEST, KERNEL, Offer

NO_NETEM = Offer(KERNEL, False, "the kernel 6.1.0 has no sch_netem", "modprobe sch_netem")
NO_GUEST = Offer(GUEST, False, "linux.uml is not on the PATH", "apt-get install user-mode-linux kmod")

COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "run": lambda file: ["run", file],
    "run --json": lambda file: ["run", file, "--json"],
    "dry run": lambda file: ["run", file, "--dry-run"],
    "calibrate": lambda file: ["calibrate", file],
    "calibrate --json": lambda file: ["calibrate", file, "--json"],
    "exec": lambda file: ["exec", file, "east-0", "--", "true"],
    "shell": lambda file: ["shell", file],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands are typed, on a machine without netem and without a testbed to join."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(probe, "probe_kernel", lambda: NO_NETEM)
    monkeypatch.setattr(probe, "probe_guest", lambda: NO_GUEST)
    monkeypatch.setattr("wanbed.testbed.hosts.joining.join_testbed", lambda *_: None)
    monkeypatch.setattr("wanbed.testbed.testbed.claim", lambda *_: pytest.fail("a testbed was claimed"))
    return tmp_path


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has netem and every program after all."""
    monkeypatch.setattr(probe, "probe_kernel", lambda: Offer(KERNEL, True, "it has netem"))
    monkeypatch.setattr("shutil.which", lambda program, path=None: f"/usr/bin/{program}")


def written(document: object, name: str = "exp.yaml") -> str:
    Path(name).write_text(document if isinstance(document, str) else yaml.safe_dump(document), encoding="utf-8")
    return name


def refusal_with(command: str, document: object, *options: str, status: int = 2) -> str:
    """Return the line with which a command refuses a document and options, which come right after its name."""
    first, *rest = COMMANDS[command](written(document))
    return refusal(first, *options, *rest, status=status)


def topology(**changes: Any) -> dict[str, Any]:
    return small(topology={**SMALL["topology"], **changes})


def alias_bomb() -> str:
    lines = ["topology: &a0 {datacenters: []}"]
    lines += [f"x{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 10)]
    return "\n".join(lines)


BAD_FILES: dict[str, tuple[object, str]] = {
    "unknown field": (
        topology(wann={}),
        "exp.yaml: topology.wann: unknown field, did you mean 'wan'?",
    ),
    "wrong unit": (
        topology(wan={"latency": "40Mbit"}),
        "exp.yaml: topology.wan.latency: '40Mbit' has the unit 'Mbit', not one of a duration (ns, us, µs, ms, s, min, "
        "h): write it like 40ms, 50us or 2s",
    ),
    "bare number": (
        topology(wan={"latency": 40}),
        "exp.yaml: topology.wan.latency: 40 has no unit: write a duration like 40ms, 50us or 2s",
    ),
    "negative latency": (
        topology(wan={"latency": "-40ms"}),
        "exp.yaml: topology.wan.latency: '-40ms' is negative: a duration is zero or more",
    ),
    "link to an unknown datacenter": (
        topology(links=[{"between": ["east", "north"]}]),
        "exp.yaml: topology.links.0.between: no datacenter 'north', there are east, west",
    ),
    "more stages than hosts": (
        small(training={"stages": 5}),
        "exp.yaml: training.stages: 5 stages need 5 GPUs, one each, and the hosts have 4 (east 2, west 2): add hosts "
        "or use fewer stages",
    ),
    "unknown schedule": (
        small(variants=[{"name": "a", "schedule": "gpip"}]),
        "exp.yaml: variants.0.schedule: no schedule 'gpip', did you mean 'gpipe'?",
    ),
    "options that the schedule does not have": (
        small(variants=[{"name": "a", "schedule": "gpipe", "options": {"depth": 1}}]),
        "exp.yaml: variants.0.schedule: ",
    ),
    "a rule that the schedule does not have": (
        small(variants=[{"name": "a", "schedule": "varuna", "options": {"recompute": "late"}}]),
        "exp.yaml: variants.0.schedule: recompute: 'late' is no rule of varuna's options, take ahead or on-gradient",
    ),
    "swept dilation": (
        small(sweep={"dilation": [1, 2]}),
        "exp.yaml: sweep: dilation: a run has one for all its sweep points, leave it out of the sweep",
    ),
    "alias bomb": (
        alias_bomb(),
        "exp.yaml: line 6: more than 100000 values once its aliases are expanded, use fewer",
    ),
    "no YAML": ("topology: [", "exp.yaml: line 1: not YAML: "),
    "empty file": ("", "exp.yaml: empty, not a mapping: write fields like `name: value`"),
    "another engine": (
        small(engine="cluster"),
        "exp.yaml: engine: 'cluster' is not known: give 'emulate', 'rack' or 'simulate'",
    ),
    "ideal transport": (
        small(variants=[{"name": "a", "schedule": "gpipe", "transport": {"model": "ideal"}}]),
        "exp.yaml: variants.0.transport.model: only a simulation models transport as ideal: give engine: simulate, or "
        "leave model out",
    ),
    "more hosts than a testbed has": (
        topology(datacenters=[{"name": "east", "hosts": 2}, {"name": "west", "hosts": 300}]),
        "exp.yaml: topology.datacenters.1.hosts: 300 hosts, where an emulated datacenter has 250 at most: take fewer, "
        "or simulate",
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("fault", BAD_FILES)
def test_a_bad_file_is_one_line_with_file_field_and_remedy_and_nothing_is_made(fault: str, command: str) -> None:
    document, text = BAD_FILES[fault]
    assert refusal(*COMMANDS[command](written(document))).startswith(text)


@pytest.mark.parametrize("command", ["calibrate", "exec", "shell"])
def test_a_network_that_can_only_be_simulated_is_not_brought_up(command: str) -> None:
    document = topology(datacenters=[{"name": "east", "hosts": 300}, {"name": "west", "hosts": 1}])
    text = refusal(*COMMANDS[command](written({**document, "engine": "simulate", "training": {"stages": 2}})))
    assert text.startswith("exp.yaml: topology.datacenters.0.hosts: 300 hosts, where an emulated datacenter has 250")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_cannot_be_read_is_named(command: str) -> None:
    remedy = "give the path of a readable YAML file"
    text = f"none.yaml: cannot be read (No such file or directory): {remedy}"
    assert refusal(*COMMANDS[command]("none.yaml")) == text
    Path("folder").mkdir()
    assert refusal(*COMMANDS[command]("folder")) == f"folder: cannot be read (Is a directory): {remedy}"


@pytest.mark.parametrize("command", ["run", "dry run", "calibrate", "exec"])
def test_a_bad_override_is_reported_with_what_was_typed(command: str) -> None:
    text = refusal_with(command, SMALL, "--set", "topology.wan.latency=40")
    assert text.startswith("exp.yaml --set topology.wan.latency=40: topology.wan.latency: 40 has no unit")


@pytest.mark.parametrize(
    ("field", "text"),
    [("engine", "give 'emulate', 'rack' or 'simulate'"), ("clock", "give 'real' or 'virtual'")],
)
def test_the_short_options_are_checked_like_the_fields(field: str, text: str) -> None:
    line = f"exp.yaml --set {field}=wall: {field}: 'wall' is not known: {text}"
    assert refusal("run", written(SMALL), f"--{field}", "wall") == line


@pytest.mark.parametrize("command", ["run", "calibrate", "exec"])
def test_without_its_kernel_virtual_time_is_status_5_with_what_builds_it(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SUDO_USER", raising=False)
    text = refusal_with(command, SMALL, "--clock", "virtual", status=5)
    assert text == f"no virtual-time kernel of this version in {tmp_path}/wanbed/virtual-kernel: make virtual"


@pytest.mark.parametrize("command", ["run", "calibrate", "exec"])
def test_virtual_time_has_no_guest_between_its_hosts(command: str) -> None:
    text = refusal_with(command, SMALL, "--clock", "virtual", "--substrate", "guest")
    assert text.startswith("--substrate guest: in virtual time links are the kernel's own")


@pytest.mark.parametrize("command", ["run", "calibrate", "exec", "shell"])
@pytest.mark.parametrize("dilation", ["auto", 1])
def test_a_substrate_that_is_none_is_bad_input_whatever_else_the_file_says(command: str, dilation: object) -> None:
    text = refusal_with(command, small(dilation=dilation), "--substrate", "qemu")
    assert text == "--substrate: 'qemu' is not a substrate, give auto, kernel, guest or relay"


@pytest.mark.parametrize("command", ["run", "run --json", "calibrate", "calibrate --json", "exec", "shell"])
@pytest.mark.parametrize("dilation", ["auto", 1])
def test_a_machine_without_netem_is_status_5_with_what_to_install(command: str, dilation: object) -> None:
    text = refusal(*COMMANDS[command](written(small(dilation=dilation))), status=5)
    assert text == (
        "no netem anywhere: the kernel 6.1.0 has no sch_netem; linux.uml is not on the PATH "
        "(apt-get install user-mode-linux kmod; or modprobe sch_netem; or `wanbed run --substrate relay`, where TCP is "
        "modelled)"
    )


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize("command", ["run", "calibrate", "exec"])
def test_a_program_that_the_machine_lacks_is_status_5_too(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program, **_: None if program == "iperf3" else f"/usr/bin/{program}")
    text = refusal(*COMMANDS[command](written(small(dilation=1))), status=5)
    assert text == "iperf3 is not installed: apt-get install iperf3"


@pytest.mark.usefixtures("able")
def test_a_run_that_the_machine_cannot_carry_is_status_5(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanbed.runner.emulation.run_dilation.measure_capacity_bps", lambda *_: 10_000_000)
    assert refusal("run", written(SMALL), status=5).startswith("dilation: the links in use ask for 2Gbit at once")


def test_a_dry_run_lists_every_trial_in_the_order_it_would_run() -> None:
    file = written(
        small(
            sweep={"topology.wan.latency": ["10ms", "40ms"]},
            variants=[{"name": "a", "schedule": "gpipe"}, {"name": "b", "schedule": "1f1b"}],
            repeats=2,
        )
    )
    done = wanbed("run", file, "--dry-run")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.partition("\n\n")[0].splitlines() == [
        f"topology.wan.latency={latency}: {variant}, repeat {repeat}"
        for latency in ("10ms", "40ms")
        for repeat in (0, 1)
        for variant in ("a", "b")
    ]
    document = printed("run", file, "--dry-run")
    assert document["run"] is None
    assert document["trials"] == [
        {"sweep_point": point, "swept": {"topology.wan.latency": latency}, "variant": variant, "repeat": repeat}
        for point, latency in enumerate(("10ms", "40ms"))
        for repeat in (0, 1)
        for variant in ("a", "b")
    ]


def test_a_dry_run_of_a_single_sweep_point_names_the_experiment_and_makes_nothing() -> None:
    file = written(SMALL, "quick look.yaml")
    done = wanbed("run", file, "--dry-run", "--set", "repeats=1")
    assert done.stdout.startswith("quick look: gpipe, repeat 0\n\nlinks")
    assert os.listdir() == [file]


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_a_dry_run_refuses_what_the_run_over_a_relay_does(options: list[str]) -> None:
    file = written(topology(wan={"latency": "40ms", "events": [{"at": "1s", "latency": "9ms"}]}))
    text = refusal("run", file, "--substrate", "relay", *options)
    assert text.startswith("exp.yaml: --substrate relay: the link from east to west changes during a trial")
    text = refusal("run", written(SMALL), "--substrate", "relay", "--clock", "virtual", *options)
    assert text.startswith("--substrate relay: in virtual time links are the kernel's own")


@pytest.mark.usefixtures("able")
def test_a_folder_for_runs_that_is_none_is_refused() -> None:
    text = refusal("run", written(small(dilation=1)), "--runs", "exp.yaml")
    assert text == f"--runs: {Path.cwd() / 'exp.yaml'} is no folder, give another place for runs"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["exp.yaml", "east-7", "--", "true"],
            "exp.yaml: host 'east-7' is not in the topology: it has east-0, east-1, west-0, west-1",
        ),
        (
            ["exp.yaml", "east-0", "--also", "north-0 iperf3 -s", "--", "true"],
            "exp.yaml: host 'north-0' is not in the topology: it has east-0, east-1, west-0, west-1",
        ),
        (
            ["exp.yaml", "east-0", "--also", "west-0", "--", "true"],
            "--also 'west-0': give a host and a program, like 'west-0 iperf3 -s'",
        ),
        (
            ["exp.yaml", "east-0", "--also", "", "--", "true"],
            "--also '': give a host and a program, like 'west-0 iperf3 -s'",
        ),
        (
            ["exp.yaml", "east-0", "--also", "west-0 sh -c 'oops", "--", "true"],
            '--also "west-0 sh -c \'oops": No closing quotation',
        ),
    ],
)
def test_a_host_or_program_that_is_none_is_refused_with_those_there_are(arguments: list[str], text: str) -> None:
    written(SMALL)
    assert refusal("exec", *arguments) == text


@pytest.mark.parametrize("arguments", [["nowhere"], ["nowhere", "--output", "report.html"]])
def test_a_report_of_what_is_no_run_is_refused(arguments: list[str]) -> None:
    assert refusal("report", *arguments).startswith("nowhere: not a run's folder: manifest.json: No such file")


def finished_run() -> RunStore:
    """A run of one rank that computed once."""
    store = begin_run(load_experiment(Path(written(SMALL))), Path("runs"), {"dilation": 1.0})
    spans = (Span("forward", 1, 0, 0, 1_000_000), Span("backward", 1, 0, 1_000_000, 3_000_000))
    log = SpanLogContents(RankPlace(0, "east-0", "east", 0, 0, 0), spans, complete=True)
    store.write_trial(TrialRecord(TrialId(0, "gpipe", 0), [log]))
    store.finish()
    return store


def test_a_report_that_cannot_be_written_is_refused() -> None:
    done = refusal("report", str(finished_run().path), "--output", "nowhere/report.html")
    assert done == "nowhere/report.html: cannot be written (No such file or directory), give another --output"


def test_a_report_lies_in_the_first_run_unless_configured() -> None:
    store = finished_run()
    done = wanbed("report", str(store.path))
    assert (done.exit_code, done.stdout) == (0, f"{store.path}/report.html\n")
    assert (store.path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_run_without_a_finished_trial_has_no_report() -> None:
    store = begin_run(load_experiment(Path(written(SMALL))), Path("runs"), {"dilation": 1.0})
    assert "no trial of this run has finished" in refusal("report", str(store.path), status=4)
    assert not (store.path / "report.html").exists()


@pytest.mark.parametrize("arguments", [["run"], ["run", "exp.yaml", "--nonsense"], ["nonsense"], ["exec", "exp.yaml"]])
def test_a_command_that_is_typed_wrongly_is_bad_usage(arguments: list[str]) -> None:
    written(SMALL)
    done = wanbed(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Usage: " in done.stderr
    assert os.listdir() == ["exp.yaml"]


@pytest.mark.parametrize(
    "command", ["doctor", "calibrate", "exec", "shell", "run", "profile", "simulate", "report", "clean"]
)
def test_every_command_explains_itself(command: str) -> None:
    done = called(command, "--help")
    assert f"Usage: wanbed {command}" in done.stdout or f" {command} " in done.stdout


def test_gradients_of_replayed_compute_are_refused() -> None:
    text = refusal("run", written(SMALL), "--keep-gradients")
    assert text == "--keep-gradients: replayed compute makes none: give compute: {kind: torch}"


@pytest.mark.usefixtures("able")
def test_training_in_torch_where_there_is_none_is_status_5(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanbed.workloads.compute.backends.torch_backend.find_spec", lambda _: None)
    text = refusal("run", written(small(model="gpt-tiny", compute={"kind": "torch"}, dilation=1)), status=5)
    assert text == "torch is not installed: ./setup.sh test, or pip install 'wanbed[torch]'"
