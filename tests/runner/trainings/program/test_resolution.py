import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.refused import refused
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.trainings.program.resolution import ProgramVariant, ResolvedProgram

TRAIN: dict[str, Any] = {"command": ["python", "train.py"]}


def document(program: dict[str, Any], **more: Any) -> dict[str, Any]:
    variant = {"name": "mine", "program": {**TRAIN, **program}, **more.pop("variant", {})}
    return {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 2, "gpus_per_host": 2}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "40ms", "rate": "1Gbit"},
        },
        "variants": [variant, *more.pop("variants", ())],
        **more,
    }


def resolved(program: dict[str, Any], **more: Any) -> SweepPoint:
    (point,) = parse_experiment(document(program, **more), "exp.yaml", Path("/tmp")).points()
    return point


def refusal(program: dict[str, Any], **more: Any) -> str:
    return refused(lambda: parse_experiment(document(program, **more), "exp.yaml", Path("/tmp")))


def program_of(point: SweepPoint) -> ResolvedProgram:
    (variant,) = point.variants
    assert isinstance(variant, ProgramVariant)
    return variant.program


def counts(point: SweepPoint) -> tuple[int, int, int]:
    """Return the iterations of a program, those that warm up, and those that are profiled."""
    program = program_of(point)
    return program.iterations, program.warmup, program.profiled


def test_ranks_follow_the_order_of_hosts_and_their_gpus() -> None:
    (variant,) = resolved({}).variants
    seats = [(place.host.name, place.gpu) for place in variant.placement.places]
    assert seats == [("east-0", 0), ("east-0", 1), ("east-1", 0), ("east-1", 1), ("west-0", 0)]
    assert variant.pipelines == 5


def test_fewer_processes_than_gpus_may_be_asked_for() -> None:
    (variant,) = resolved({"processes_per_host": 1}).variants
    assert [place.host.name for place in variant.placement.places] == ["east-0", "east-1", "west-0"]


def test_iterations_and_warm_up_are_those_of_training_unless_written() -> None:
    assert counts(resolved({}, training={"iterations": 8, "warmup": 2})) == (8, 2, 1)
    assert counts(resolved({"iterations": 9, "warmup": 3, "profile": 2})) == (9, 3, 2)


def test_a_program_stands_beside_schedules_whatever_they_train_on() -> None:
    point = resolved({}, variants=[{"name": "gpipe", "schedule": "gpipe"}], training={"microbatches": 4})
    assert [isinstance(variant, ProgramVariant) for variant in point.variants] == [True, False]
    assert point.tokens_per_iteration == 4 * 4096
    assert point.real_time


def test_tokens_of_an_experiment_of_programs_alone_are_unknown() -> None:
    assert resolved({}).tokens_per_iteration is None


@pytest.mark.parametrize(
    ("program", "more", "said"),
    [
        ({"processes_per_host": 2}, {}, "program.processes_per_host: 2, where west-0 has 1: give its datacenter gpus"),
        ({"iterations": 3, "warmup": 2}, {}, "program.iterations: 3, of which 2 warm up and 1 are profiled, leaves"),
        ({}, {"training": {"warmup": 0}}, "program.warmup: 0: the first iteration begins with the program"),
        ({}, {"variant": {"options": {"a": 1}}}, "variants.0.options: a program decides that itself"),
        ({}, {"variant": {"placement": ["east"]}}, "variants.0.placement: a program decides that itself"),
        ({}, {"variant": {"training": {"stages": 2}}}, "variants.0.training: a program decides that itself"),
        ({}, {"variant": {"transport": {"connections": 4}}}, "transport.connections: a program makes its own"),
        ({}, {"variant": {"transport": {"overlap": False}}}, "transport.overlap: a program makes its own"),
        ({}, {"variant": {"transport": {"receive": "blocks"}}}, "transport.receive: a program makes its own"),
        ({}, {"variant": {"transport": {"activation": {"wire": "int8"}}}}, "transport.activation: a program makes its"),
        ({}, {"prefill": {"trace": "poisson", "rate": "1/s"}}, "the bubbles of a program are not known"),
        ({"also": [{"host": "north-0", "command": ["a"]}]}, {}, "no host 'north-0' here: east-0, east-1, west-0"),
        ({}, {"clock": "virtual"}, "variants.0.program: in virtual time computation is free"),
        ({}, {"engine": "simulate"}, "variants.0.program: a program runs as it is and is not simulated"),
        ({}, {"dilation": 2}, "dilation: what a program computes cannot be dilated"),
    ],
)
def test_what_a_program_cannot_do_is_refused_in_one_line(
    program: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    assert said in refusal(program, **more)


def test_a_window_and_a_congestion_control_hold_for_a_program_s_connections() -> None:
    (variant,) = resolved({}, variant={"transport": {"window": "512KiB", "congestion": "reno"}}).variants
    assert variant.tcp.congestion == "reno"


def test_one_iteration_at_least_is_left_to_measure() -> None:
    assert counts(resolved({"iterations": 4, "warmup": 2})) == (4, 2, 1)
    assert resolved({"iterations": 3, "warmup": 1, "profile": 1}).variants
    assert resolved({"iterations": 2, "warmup": 1, "profile": 0}).variants
    assert "1 warm up and 1 are profiled, leaves none" in refusal({"iterations": 2, "warmup": 1, "profile": 1})


def test_the_python_of_torchs_launcher_is_that_of_the_command() -> None:
    def python_of(word: str) -> str | None:
        program = program_of(resolved({"command": [word, "a"], "launcher": "torchrun"}))
        assert program.uses_torchrun
        return program.torchrun_python

    assert [python_of(word) for word in ("python", "/usr/bin/python3.11", "{python}")] == [
        "python",
        "/usr/bin/python3.11",
        "{python}",
    ]
    assert [python_of(word) for word in ("bash", "./train.py")] == [None, None]


def test_what_stands_for_the_same_everywhere_is_known_ahead() -> None:
    program = program_of(resolved({"pattern": "step"}))
    assert program.values_everywhere == {"python": sys.executable, "folder": str(Path("/tmp").resolve())}
    assert (program.marked_by, program.uses_torchrun, program.profiled) == ("output", False, 0)


@pytest.mark.parametrize(
    "transport",
    [
        {"model": "ideal"},
        {"sharing": "temporal"},
        {"all_reduce": "gloo"},
        {"all_reduce_overlap": True},
        {"all_reduce_overlap": True, "bucket": "5MiB"},
    ],
)
def test_a_program_has_nothing_of_wanbeds_own_transport(transport: dict[str, Any]) -> None:
    assert "a program makes its own connections: leave" in refusal({}, variant={"transport": transport})


def test_a_program_may_say_that_it_does_not_prefill() -> None:
    assert resolved({}, variant={"prefill": "none"}).variants
    prefill = {"trace": "poisson", "rate": "1/s"}
    assert "variants.0.pool: a program decides that itself" in refusal(
        {}, variant={"prefill": "none", "pool": 2}, prefill=prefill
    )
