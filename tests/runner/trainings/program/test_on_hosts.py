import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.refused import refused
from wanbed.ground.errors import InputError
from wanbed.results.records.span_log import RankPlace, Span, SpanLog
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.runs.faults import TrialError
from wanbed.runner.trainings.program.on_hosts import (
    IterationWatch,
    ProgramPlaces,
    check_programs,
    first_cause,
    measured_ns,
    profiled_iterations,
    read_ranks,
    torchrun_command,
    unmarked,
)
from wanbed.runner.trainings.program.resolution import ResolvedProgram
from wanbed.runner.trainings.program.spec import ProgramSpec
from wanbed.testbed.hosts.host_environment import HostHome, home_here
from wanbed.testbed.network.address_book import AddressBook

CAUSE = "rank 1 on west-0 ended with status 1: RuntimeError: my bug"

GLOO = "rank 0 on east-0 ended with status 1: RuntimeError: [pair.cc:553] Connection closed by peer [10.1.1.2]:55973"


@pytest.mark.parametrize(
    "consequence",
    [
        GLOO,
        "rank 2 on south-0 ended with status 1: ConnectionResetError: [Errno 104] Connection reset by peer",
        "rank 2 on south-0 ended with status 1: torch.distributed.DistBackendError: NCCL error: remote process exited",
        "torchrun on east-0 ended with status 1: torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "rank 0 on east-0 was ended by SIGABRT",
        "rank 0 on east-0 ended with status 1: torch.distributed.DistStoreError: wait timeout after 300000ms",
    ],
)
def test_a_rank_that_only_misses_another_one_is_not_the_cause(consequence: str) -> None:
    assert first_cause([consequence, CAUSE]) == CAUSE


def test_of_several_causes_and_of_none_the_first_is_reported() -> None:
    other = CAUSE.replace("1", "2")
    assert first_cause([other, CAUSE]) == other
    assert first_cause([GLOO, GLOO.replace("0", "3")]) == GLOO
    assert first_cause([]) is None


HEADER = json.dumps({"version": 2, "rank": 0})


def iteration(number: int) -> str:
    return json.dumps(["iteration", number, -1, 0, 1, 0, "", "", -1])


def watch(folder: Path, ranks: int = 2) -> IterationWatch:
    return IterationWatch({rank: folder / f"rank-{rank}.spans" for rank in range(ranks)})


def log(folder: Path, rank: int, *lines: str) -> None:
    with (folder / f"rank-{rank}.spans").open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def test_nothing_is_complete_before_a_rank_logs(tmp_path: Path) -> None:
    following = watch(tmp_path)
    following.look()
    assert (following.total, following.all_complete, following.slowest) == (0, False, None)


def test_iterations_are_counted_as_they_are_logged_and_other_spans_are_not(tmp_path: Path) -> None:
    following = watch(tmp_path)
    log(tmp_path, 0, HEADER, iteration(0), json.dumps(["optimizer", 0, -1, 0, 1, 0, "", "", -1]))
    following.look()
    log(tmp_path, 0, iteration(1))
    log(tmp_path, 1, HEADER, iteration(0))
    following.look()
    following.look()
    assert following.ended == {0: 2, 1: 1}
    assert following.slowest == 1


def test_a_line_that_is_still_being_written_counts_once_it_is_whole(tmp_path: Path) -> None:
    following = watch(tmp_path, 1)
    whole = iteration(0)
    (tmp_path / "rank-0.spans").write_text(f"{HEADER}\n{whole[:9]}")
    following.look()
    assert following.total == 0
    (tmp_path / "rank-0.spans").write_text(f"{HEADER}\n{whole}\n")
    following.look()
    assert following.total == 1


def test_all_is_complete_once_every_rank_that_marks_has_ended_its_last_iteration(tmp_path: Path) -> None:
    following = watch(tmp_path, 3)
    for rank in (0, 1):
        log(tmp_path, rank, HEADER, iteration(0))
    log(tmp_path, 0, '{"complete": true}')
    following.look()
    assert not following.all_complete
    log(tmp_path, 1, '{"complete": true}')
    following.look()
    assert following.all_complete
    assert following.complete == {0, 1}


def program(**changes: Any) -> ResolvedProgram:
    spec = ProgramSpec.model_validate({"command": ["train"]})
    return ResolvedProgram(**{**vars(ResolvedProgram(spec, 4, 1, 1, Path("/"))), **changes})


def logged(folder: Path, rank: int, iterations: int, begin_ns: int = 0, *others: Span) -> Path:
    path = folder / f"rank-{rank}.spans"
    log = SpanLog(path, RankPlace(rank, f"host-{rank}", "east", 0, pipeline=rank, stage=0))
    for number in range(iterations):
        log.record(Span("iteration", number, -1, begin_ns + 10 * number, begin_ns + 10 * number + 10))
    for other in others:
        log.record(other)
    log.flush()
    return path


def test_what_lies_beyond_the_iterations_is_left_out_though_the_program_was_killed(tmp_path: Path) -> None:
    (log,) = read_ranks({0: logged(tmp_path, 0, 6)}, program(), "mine")
    assert [span.iteration for span in log.spans] == [0, 1, 2, 3]
    assert log.complete


def test_a_rank_that_marked_nothing_is_left_out_and_named(tmp_path: Path) -> None:
    logs = read_ranks({0: logged(tmp_path, 0, 4), 1: tmp_path / "rank-1.spans"}, program(), "mine")
    assert [log.header.rank for log in logs] == [0]
    assert unmarked(logs, 2) == [1]


def test_a_message_has_the_host_at_its_other_end_which_a_rank_does_not_know(tmp_path: Path) -> None:
    paths = {
        rank: logged(tmp_path, rank, 4, 0, Span(kind, 3, -1, 31, 35, 8, "", "0,1"))
        for rank, kind in enumerate(("send", "receive"))
    }
    logs = read_ranks(paths, program(), "mine")
    assert [(log.spans[-1].kind, log.spans[-1].peer) for log in logs] == [("send", "host-1"), ("receive", "host-0")]


def test_the_measured_part_ends_before_the_profiled_iterations_and_begins_with_the_last_rank(tmp_path: Path) -> None:
    logs = read_ranks({0: logged(tmp_path, 0, 4), 1: logged(tmp_path, 1, 4, begin_ns=3)}, program(), "mine")
    assert measured_ns(logs, program(), 1) == (13, 33)


def test_iterations_are_profiled_only_where_a_profiler_left_what_it_saw(tmp_path: Path) -> None:
    logs = read_ranks({0: logged(tmp_path, 0, 4)}, program(), "mine")
    assert profiled_iterations(logs, program()) == 0
    (log,) = logs
    seen = replace(log, spans=(*log.spans, Span("optimizer", 3, -1, 30, 31), Span("all_reduce", 3, -1, 31, 32)))
    assert profiled_iterations([seen], program()) == 1
    assert profiled_iterations([replace(log, spans=seen.spans[:-1])], program()) == 0


def test_too_few_iterations_and_none_at_all_are_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(TrialError, match="after 2 iterations at rank 0 on host-0, where 4 were to be done: let it do"):
        read_ranks({0: logged(tmp_path, 0, 2)}, program(), "mine")
    with pytest.raises(TrialError, match="no iteration was marked: it stepped no optimizer"):
        read_ranks({0: tmp_path / "rank-5.spans"}, program(), "mine")


ELSEWHERE = HostHome(
    ("/opt/python", "module_process.py"),
    "/bin:/opt",
    lambda path: path.replace("/mine", "/sent/0").replace("/experiments", "/sent/1"),
)
"""What programs find on another machine."""


def places(home: HostHome | None = None, **program: Any) -> ProgramPlaces:
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 1, "gpus_per_host": 2}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "40ms", "rate": "1Gbit"},
        },
        "variants": [{"name": "mine", "program": {"command": ["python", "train.py"], **program}}],
    }
    (point,) = parse_experiment(document, "exp.yaml", Path("/experiments")).points()
    (variant,) = point.variants
    assert variant.program is not None
    homes = {host.name: home or home_here() for host in point.topology.hosts}
    return ProgramPlaces(variant.program, variant.placement, AddressBook(point.topology, 3), 20_000, homes)


def test_every_process_is_told_its_rank_and_where_all_meet() -> None:
    of = places()
    east, west = of.hosts
    told = {
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "3",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": of.addresses.address(east),
        "MASTER_PORT": "20000",
    }
    assert told.items() <= of.environment(east, of.places_on(east)[1]).items()
    assert of.environment(west, of.places_on(west)[0])["RANK"] == "2"


def test_libraries_are_kept_on_the_emulated_network() -> None:
    kept = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_HOSTID": "east-0", "UCX_NET_DEVICES": "eth0"}
    kept |= dict.fromkeys(("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"), "1")
    assert kept.items() <= places().environment(places().hosts[0]).items()


def test_programs_beside_wanbed_s_python_are_found_after_those_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/mine:/usr/bin")
    assert places().environment(places().hosts[0])["PATH"] == f"/mine:/usr/bin:{Path(sys.executable).parent}"


def test_placeholders_are_filled_in_words_and_variables() -> None:
    of = places(command=["{python}", "{folder}/train.py", "{rank}/{world_size}"], env={"AT": "{host}:{rank}"})
    (west,) = of.places_on(of.hosts[1])
    assert of.words(of.program.spec.command, west.host, west) == (sys.executable, "/experiments/train.py", "2/3")
    assert of.environment(west.host, west)["AT"] == "west-0:2"


def test_on_another_machine_words_name_what_is_there() -> None:
    of = places(ELSEWHERE, command=["{python}", "/mine/train.py", "{folder}/data"], env={"AT": "{folder}"})
    west = of.hosts[1]
    assert of.words(of.program.spec.command, west) == ("/opt/python", "/sent/0/train.py", "/sent/1/data")
    environment = of.environment(west)
    assert (environment["AT"], environment["PATH"]) == ("/sent/1", "/bin:/opt")


def test_a_variable_that_needs_a_rank_is_left_out_where_there_is_none() -> None:
    of = places(env={"AT": "{rank}", "HERE": "{datacenter}"})
    environment = of.environment(of.hosts[0])
    assert "AT" not in environment
    assert environment["HERE"] == "east"


def test_the_user_s_variables_replace_wanbed_s_own() -> None:
    of = places(env={"GLOO_SOCKET_IFNAME": "lo"})
    assert of.environment(of.hosts[0])["GLOO_SOCKET_IFNAME"] == "lo"


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        (["python", "train.py"], ["python", "-m", "torch.distributed.run"]),
        (["/opt/venv/bin/python3.12", "train.py"], ["/opt/venv/bin/python3.12", "-m", "torch.distributed.run"]),
        (["{python}", "train.py"], [sys.executable, "-m", "torch.distributed.run"]),
        (["./train.sh"], ["torchrun"]),
    ],
)
def test_torchrun_belongs_to_the_python_of_the_command(command: list[str], launcher: list[str]) -> None:
    of = places(command=command, launcher="torchrun")
    words = torchrun_command(of, of.hosts[1], "token", ["each", "one"], Path("/logs"))
    assert list(words[: len(launcher)]) == launcher
    assert words[len(launcher) :] == (
        "--nnodes=2",
        "--nproc-per-node=1",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=east-0:20000",
        "--rdzv-id=token",
        "--max-restarts=0",
        "--log-dir=/logs",
        "--no-python",
        "each",
        "one",
    )


def test_with_a_static_rendezvous_ranks_follow_the_order_of_hosts() -> None:
    of = places(launcher="torchrun", rendezvous="static")
    words = torchrun_command(of, of.hosts[1], "token", ["each"], Path("/logs"))
    assert {"--node-rank=1", f"--master-addr={of.rendezvous_address}", "--rdzv-backend=static"} <= set(words)


def check(folder: Path, **program: Any) -> None:
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "40ms", "rate": "1Gbit"},
        },
        "variants": [{"name": "mine", "program": {"command": ["{python}", "train.py"], **program}}],
    }
    (point,) = parse_experiment(document, "exp.yaml", folder).points()
    check_programs(point)


@pytest.mark.parametrize(
    "program",
    [
        {},
        {"command": ["sh", "-c", "true"]},
        {"command": ["./train.sh"]},
        {"command": ["{folder}/train.sh"]},
        {"command": ["./{host}.sh"]},
        {"command": ["made-by-setup"], "setup": ["sh", "prepare.sh"]},
        {"command": ["mine"], "env": {"PATH": "{folder}/bin"}},
        {"launcher": "torchrun"},
    ],
)
def test_a_program_that_is_there_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Any) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("train.sh", "bin/mine"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    check(tmp_path, **program)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            {"command": ["nosuchprogram"]},
            "variants.0.program.command: 'nosuchprogram': there is no such program on PATH",
        ),
        (
            {"command": ["./nosuch.sh"]},
            "variants.0.program.command: './nosuch.sh': there is no such program here, in /",
        ),
        ({"command": ["/tmp"]}, "there is no such program here"),
        ({"command": ["./plain.txt"]}, "it is not executable: chmod"),
        ({"setup": ["nosuchsetup"]}, "variants.0.program.setup: 'nosuchsetup'"),
        ({"also": [{"host": "east-0", "command": ["nosuch"]}]}, "variants.0.program.also.0.command: 'nosuch'"),
        (
            {"command": ["sh"], "env": {"PATH": "/nowhere"}},
            "variants.0.program.command: 'sh': there is no such program",
        ),
    ],
)
def test_one_that_is_not_is_named_with_its_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Any, said: str
) -> None:
    (tmp_path / "plain.txt").write_text("")
    monkeypatch.chdir(tmp_path)
    assert said in refused(lambda: check(tmp_path, **program))


def test_torchrun_has_to_be_on_path_where_the_command_names_no_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(InputError, match=r"program\.launcher: 'torchrun'"):
        check(tmp_path, launcher="torchrun", command=["/bin/sh", "-c", "true"])
