"""Inputs of every kind that commands read end in a clear line or a right result, however they are damaged."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.reliability.fuzz.attempts import attempts, unchanged
from tests.reliability.fuzz.judgement import Outcome
from tests.reliability.fuzz.kind import Kind
from tests.reliability.fuzz.kinds import KINDS
from wanbed.runner.runs.faults import DONE, REGRESSED

NAMES = {kind.name: kind for kind in KINDS}
QUICK = ["network presets", "request traces of Mooncake", "Chakra traces", "span logs", "frames of a prefill service"]


def faults(kind: Kind, count: int) -> list[str]:
    found = attempts(kind, 1, range(count))
    return [f"{each.repeat}: {each.faults}" for each in found if each.outcome is Outcome.FAULT]


@pytest.mark.parametrize("name", QUICK)
def test_bad_inputs_of_some_kinds_end_well(name: str) -> None:
    assert faults(NAMES[name], 6) == []


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_bad_inputs_of_every_kind_end_well(name: str) -> None:
    assert faults(NAMES[name], 30) == []


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_every_command_accepts_the_input_of_its_kind_as_it_was(name: str, tmp_path: Path) -> None:
    ends = unchanged(NAMES[name], tmp_path)
    # A comparison of two different variants may find that one is slower.
    assert [each.errors for each in ends if each.status not in {DONE, REGRESSED}] == []


def test_an_interrupt_ends_the_trying_and_not_one_input_only() -> None:
    def interrupt(_: Path) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    kind = replace(NAMES["network presets"], commands=(), reads=(interrupt,))
    with pytest.raises(SystemExit) as ended:
        list(attempts(kind, 1, range(3)))
    assert ended.value.code == 128 + signal.SIGTERM


@pytest.mark.parametrize("name", ["network presets", "WAN traces", "packet logs", "captures of a probe"])
def test_a_number_is_always_the_same_input(name: str, tmp_path: Path) -> None:
    contents = []
    for turn in ("one", "other"):
        folder = tmp_path / turn
        folder.mkdir()
        NAMES[name].make(folder)
        file = NAMES[name].damage_one(folder, Random("1 7"))
        contents.append((file.name, file.read_bytes()))
    assert contents[0] == contents[1]
