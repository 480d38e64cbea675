"""Commands report numbers that are too large in one short line with file, field and remedy."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runner.commands_here import called, refusal

FIRST: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "20ms", "rate": "100Mbit"},
    },
    "compute": {"forward": "20ms", "backward": "40ms", "activation": "1MiB"},
    "training": {"microbatches": 4},
}

COMMANDS = {
    "run": ["run", "exp.yaml", "--dry-run"],
    "simulate": ["simulate", "exp.yaml", "--jobs", "1"],
    "plan": ["plan", "exp.yaml"],
    "calibrate": ["calibrate", "exp.yaml"],
}

NINES = {digits: "9" * digits for digits in (60, 400, 5000)}
BEYOND = "9" * 60 + "..."

REFUSED: dict[str, tuple[str, str, str]] = {
    "a duration of centuries": (
        "compute.forward",
        "10000000000s",
        "'10000000000s' is above 86400s, the longest duration: give less",
    ),
    "a size beyond every memory": (
        "compute.activation",
        "10000GB",
        "'10000GB' is above 4096GiB, the largest size: give less",
    ),
    "a rate beyond every link": (
        "topology.wan.rate",
        "1001Tbit",
        "'1001Tbit' is above 1000Tbit, the highest rate beside unlimited: give less",
    ),
    "a latency above a minute": ("topology.wan.latency", "61s", "61s is above the 60s that a link may have"),
    "a rate of 60 digits": (
        "topology.wan.rate",
        f"{NINES[60]}Gbit",
        f"'{BEYOND}' has 64 characters, a rate at most 60: write it like 5Gbit, 200Mbit or unlimited",
    ),
    "a rate of 400 digits": (
        "topology.wan.node_pair_rate",
        f"{NINES[400]}bit",
        f"'{BEYOND}' has 403 characters, a rate at most 60: write it like 5Gbit, 200Mbit or unlimited",
    ),
    "a size of 60 digits": (
        "compute.activation",
        f"{NINES[60]}B",
        f"'{BEYOND}' has 61 characters, a size at most 60: write it like 32MiB or 64KiB",
    ),
    "a size of 400 digits": (
        "compute.gradient",
        f"{NINES[400]}B",
        f"'{BEYOND}' has 401 characters, a size at most 60: write it like 32MiB or 64KiB",
    ),
    "a duration of 5000 digits": (
        "compute.recompute",
        f"{NINES[5000]}s",
        f"'{BEYOND}' has 5001 characters, a duration at most 60: write it like 40ms, 50us or 2s",
    ),
    "a loss of 400 digits": ("topology.wan.loss", f"0.{NINES[400]}%", "characters, a percentage at most 60"),
    "a count of 30 digits": ("training.microbatches", "9" * 30, f"{'9' * 30} is not a whole number from 1 to 4096"),
    "a count of 400 digits": (
        "training.iterations",
        NINES[400],
        f"'{BEYOND}' has more than 40 digits: give a smaller number",
    ),
    "a count of 5000 digits": (
        "training.stages",
        NINES[5000],
        f"'{BEYOND}' has more than 40 digits: give a smaller number",
    ),
    "a count of 5000 digits to the base 16": (
        "repeats",
        "0x" + NINES[5000],
        "has more than 40 digits: give a smaller number",
    ),
    "an option of 5000 digits": (
        "variants.0.options.depth",
        NINES[5000],
        "has more than 40 digits: give a smaller number",
    ),
    "a factor of 400 digits": ("dilation", f"{NINES[400]}.5", "is not a finite number"),
    "a window of 60 digits": ("variants.0.transport.window", f"{NINES[60]}B", "has 61 characters, a size at most 60"),
    "a deadline of centuries": ("prefill.slo", "10000000000s", "is above 86400s, the longest duration: give less"),
    "a memory beyond every GPU": ("prefill.memory", "10000GB", "is above 4096GiB, the largest size: give less"),
    "arrivals of 400 digits": ("prefill.rate", f"{NINES[400]}/s", "is no rate of arrivals: write it like 4/s or 0.5/s"),
    "a model whose product is too large": (
        "model",
        "{hidden: 1048576, context: 100000000}",
        "model: its dimensions make 1.95e+05 GiB of activation, more than 4096GiB: take a smaller model, or give "
        "compute.activation",
    ),
}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(**changes: Any) -> None:
    Path("exp.yaml").write_text(yaml.safe_dump({**FIRST, **changes}), encoding="utf-8")


def prepared(field: str) -> dict[str, Any]:
    """What the file holds where a field is set: what it belongs to, and nothing that stands in its way."""
    if field.startswith("prefill"):
        return {"prefill": {"trace": "poisson", "rate": "4/s"}}
    if field.startswith("variants"):
        return {"variants": [{"name": "one", "schedule": "gpipe"}]}
    return {"compute": {}} if field == "model" else {}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("command", COMMANDS)
def test_large_numbers_are_refused_in_files_and_commands(command: str, case: str) -> None:
    field, value, text = REFUSED[case]
    written(**prepared(field))
    line = refusal(*COMMANDS[command], "--set", f"{field}={value}")
    assert text in line
    assert len(line) < 400
    assert f"--set {field}=" in line
    assert field.rpartition(".")[2] in line or "line 1: " in line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_value_that_is_swept_is_bounded_too(command: str) -> None:
    written(sweep={"compute.forward": ["10000000000s", "20ms"]})
    line = refusal(*COMMANDS[command])
    assert line == (
        "exp.yaml: sweep: at compute.forward=10000000000s: compute.forward: '10000000000s' is above 86400s, "
        "the longest duration: give less"
    )


def test_the_bounds_themselves_are_planned_simulated_and_reported() -> None:
    written(
        topology={**FIRST["topology"], "wan": {"latency": "60s", "rate": "1000Tbit"}},
        compute={"forward": "86400s", "backward": "86400s", "activation": "4096GiB"},
        variants=[{"name": "one", "schedule": "varuna", "transport": {"window": "511MiB", "connections": 64}}],
    )
    for command in ("run", "plan", "simulate"):
        done = called(*COMMANDS[command], "--json")
    (row,) = json.loads(done.stdout)["summary"]
    assert row["iteration_time_s"] > 4 * 86_400


@pytest.mark.parametrize("rate", ["1bit", "1000Tbit", "unlimited"])
def test_any_rate_is_simulated(rate: str) -> None:
    written(topology={**FIRST["topology"], "wan": {"latency": "1ms", "rate": rate}})
    (row,) = json.loads(called(*COMMANDS["simulate"], "--json").stdout)["summary"]
    assert row["wan_bytes"] > 8 * 2**20
