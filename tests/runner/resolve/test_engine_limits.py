"""Refuse what an engine does not run while the file is read."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.refused import refused
from tests.support.runner.chakra_traces import all_reduce, computation, write_trace
from wanbed.runner.planner.experiment_file import parse_experiment

DOCUMENT: dict[str, Any] = {
    "name": "rack",
    "engine": "rack",
    "topology": {
        "datacenters": [{"name": name, "hosts": 1, "serving_hosts": 1} for name in ("east", "west")],
        "wan": {"latency": "1ms"},
    },
    "compute": {"forward": "1ms", "backward": "2ms", "activation": "1KiB"},
    "training": {"microbatches": 2},
    "variants": [{"name": "gpipe", "schedule": "gpipe"}],
}

PLAIN = DOCUMENT["variants"][0]

PROGRAM: dict[str, Any] = {"variants": [PLAIN, {"name": "own", "program": {"command": ["true"]}}]}

IDEAL: dict[str, Any] = {"variants": [PLAIN, {**PLAIN, "name": "b", "transport": {"model": "ideal"}}]}

TORCH: dict[str, Any] = {"compute": {"kind": "torch", "checkpointing": False}, "model": "gpt-tiny"}

TORCHS_OWN: dict[str, Any] = {**TORCH, "variants": [PLAIN, {"name": "peer", "schedule": "torch-gpipe"}]}


def run(**changes: Any) -> None:
    parse_experiment({**DOCUMENT, **changes}, "test", Path())


def refusal(directory: Path = Path(), **changes: Any) -> str:
    return refused(lambda: parse_experiment({**DOCUMENT, **changes}, "test", directory))


HELD: dict[str, Any] = {
    "variants": [PLAIN, {**PLAIN, "name": "held", "transport": {"overlap": False, "held_until": "arrival"}}]
}

EARLY: dict[str, Any] = {
    "compute": {**DOCUMENT["compute"], "gradient": "1MB"},
    "variants": [
        PLAIN,
        {
            "name": "early",
            "schedule": "diloco",
            "options": {"sync_every": 1},
            "training": {"stages": 1, "pipelines": 2, "microbatches": 1},
            "transport": {"all_reduce_overlap": True},
        },
    ],
}

VIRTUAL: dict[str, Any] = {"engine": "emulate", "clock": "virtual"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"clock": "virtual"},
            "test: clock: the machines of a rack keep real time: give clock: real, or engine: emulate",
        ),
        ({"engine": "simulate", **PROGRAM}, "variants.1.program: a program runs as it is and is not simulated"),
        ({"engine": "simulate", **TORCHS_OWN}, "variants.1.schedule: torch-gpipe is run by torch itself"),
        *(
            ({"engine": engine, **IDEAL}, "variants.1.transport.model: only a simulation models transport as ideal")
            for engine in ("emulate", "rack")
        ),
        *(
            (
                {"engine": engine, **EARLY},
                "variants.1.transport.all_reduce_overlap: ranks take pseudo-gradients after their inner step",
            )
            for engine in ("emulate", "rack")
        ),
        *(
            ({"engine": engine, **HELD}, "variants.1.transport.held_until: a rank goes on when its message has left")
            for engine in ("emulate", "rack")
        ),
        ({**VIRTUAL, **PROGRAM}, "variants.1.program: in virtual time computation is free"),
        ({**VIRTUAL, **TORCH}, "compute.kind: in virtual time computation is free, torch's would take none"),
        (
            {**TORCH, "engine": "emulate", "training": {"microbatches": 2, "precision": "fp16"}},
            "training.precision: torch trains in bf16 or fp32: in fp16 it would have to scale its losses",
        ),
        ({**VIRTUAL, "dilation": 2}, "dilation: virtual time carries every rate"),
    ],
)
def test_what_an_engine_or_a_clock_does_not_run_is_refused(changes: dict[str, Any], words: str) -> None:
    assert words in refusal(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"engine": "emulate", **PROGRAM},
        {"engine": "emulate", **TORCHS_OWN},
        {"engine": "simulate", **IDEAL},
        {**VIRTUAL, "dilation": "auto"},
        {**VIRTUAL, "dilation": 1},
        {"engine": "emulate", "clock": "real", "dilation": 2},
        {"engine": "simulate", "clock": "virtual", "dilation": 2},
        {"engine": "simulate", "clock": "virtual", **TORCH},
    ],
)
def test_another_engine_or_clock_takes_it(changes: dict[str, Any]) -> None:
    run(**changes)


def test_an_emulation_replays_one_group_of_a_rank_and_names_the_first_with_more(tmp_path: Path) -> None:
    def nodes(*groups: str) -> list[Any]:
        sums = [all_reduce(number, 8, group=name) for number, name in enumerate(groups, 1)]
        return [computation(0, 1), *sums]

    write_trace(tmp_path / "two", {0: nodes("a"), 1: nodes("b", "c"), 2: nodes("b"), 3: nodes("a", "c")})
    write_trace(tmp_path / "one", {rank: nodes("a") for rank in range(4)})
    changes: dict[str, Any] = {
        "topology": {"datacenters": [{"name": "east", "hosts": 4}]},
        "training": {},
        "variants": [{"name": "t"}],
    }
    words = refusal(tmp_path, engine="emulate", compute={"trace": "two"}, **changes)
    assert "compute.trace: rank 1 has collectives in 2 groups" in words
    for trace, engine in (("two", "simulate"), ("one", "emulate")):
        document = {**DOCUMENT, **changes, "compute": {"trace": trace}, "engine": engine}
        parse_experiment(document, "test", tmp_path)


@pytest.mark.parametrize(
    ("topology", "field"),
    [
        ({"wan": {"latency": "1ms", "loss": "100%"}}, "topology.wan.loss"),
        ({"wan": {"latency": "1ms"}, "links": [{"from": "west", "to": "east", "loss": "100%"}]}, "topology.links.0"),
        (
            {"wan": {"latency": "1ms"}, "links": [{"between": ["east", "west"], "loss": "100%"}]},
            "topology.links.0.loss",
        ),
    ],
)
@pytest.mark.parametrize("engine", ["simulate", "emulate"])
def test_a_link_that_loses_every_packet_is_refused_by_its_field(
    topology: dict[str, Any], field: str, engine: str
) -> None:
    whole = {"datacenters": DOCUMENT["topology"]["datacenters"], **topology}
    assert f"test: {field}" in refusal(topology=whole, engine=engine)
    assert refusal(topology=whole, engine=engine).count("from west to east") == ("from" in str(topology))
