"""The reference page and the shipped schema are made from the fields, and what the page shows works."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from wanbed.ground.units import UNLIMITED, parse_duration_ns, parse_fraction, parse_rate_bps, parse_size_bytes
from wanbed.runner.experiment_reference import __main__ as reference
from wanbed.runner.experiment_reference.field_tables import BEGIN, END, field_tables, with_fields
from wanbed.runner.planner.experiment_file import load_experiment

PAGE = DOCS / "experiment-file.md"
DEMO = DOCS.parent / "runner" / "experiments" / "demo.yaml"
OVERRIDES = [
    override.removeprefix("--set ")
    for line in "".join(blocks(PAGE, "")).splitlines()
    for override in re.findall(r"--set (?:'[^']*'|\S+)", line)
]


def test_page_and_schema_are_those_of_the_fields() -> None:
    assert reference.main([]) == 0, "bring them up to date: python -m wanbed.runner.experiment_reference --write"


def test_a_file_that_has_fallen_behind_is_reported_and_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page, schema = tmp_path / "page.md", tmp_path / "experiment.schema.json"
    page.write_text(f"before\n{BEGIN}| old |\n{END}after\n")
    monkeypatch.setattr(reference, "_FILES", dict(zip((schema, page), reference._FILES.values(), strict=True)))
    assert reference.main([]) == 1
    assert "--write" in capsys.readouterr().err
    assert not schema.exists()
    assert reference.main(["--write"]) == reference.main([]) == 0
    written = page.read_text()
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    assert field_tables() in written
    assert schema.read_bytes() == reference.SCHEMA.read_bytes()


@pytest.mark.parametrize("page", ["", BEGIN, END])
def test_a_page_without_its_marks_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="lacks"):
        with_fields(page)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("latency", "| duration | `0ns` | `40ms` | One-way latency"),
        ("node_pair_rate", "| `unlimited` or rate | `unlimited` | `5Gbit` |"),
        ("hosts", "| whole number, 1 to 65536 | *required* | `4` |"),
        ("backward", "| duration or list of durations | twice the forward | `40ms` | Time of the backward. |"),
        ("datacenters", "| list of [sections](#topologydatacenters) | *required* |"),
        ("placement", "| `auto` or list of names or list of lists of names |"),
        ("learning_rate", "| number above 0, at most 1 | `0.0003` |"),
        ("intra", "| [section](#topologyintra) | its defaults |"),
    ],
)
def test_a_row_has_type_unit_default_and_example(row: str, said: str) -> None:
    assert f"| `{row}` {said}" in field_tables()


@pytest.mark.parametrize(
    ("quantity", "parse"),
    [
        ("duration", parse_duration_ns),
        ("rate", parse_rate_bps),
        ("size", parse_size_bytes),
        ("percentage", parse_fraction),
    ],
)
def test_the_units_and_examples_of_a_quantity_are_read(quantity: str, parse: Callable[[object], object]) -> None:
    (row,) = re.findall(rf"^\| {quantity} \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    for word in re.findall(r"`(.*?)`", row):
        parse(word if word[0].isdigit() or word == UNLIMITED else f"1{word}")


@pytest.mark.parametrize("text", blocks(PAGE, "yaml"))
def test_an_experiment_of_the_page_loads(text: str, tmp_path: Path) -> None:
    requests = [{"timestamp": 1000 * number, "input_length": 10, "output_length": 1} for number in range(3)]
    (tmp_path / "requests.jsonl").write_text("\n".join(map(json.dumps, requests)))
    (tmp_path / "requests.csv").write_text("sent_at,input_tokens,output_tokens\n0.5,10,1\n1.5,10,1\n")
    (tmp_path / "exp.yaml").write_text(text)
    assert load_experiment(tmp_path / "exp.yaml").points()


def test_the_sweep_of_the_page_has_the_points_that_it_says(tmp_path: Path) -> None:
    (text,) = blocks(PAGE, "yaml", "Sweeps and `--set`")
    (tmp_path / "exp.yaml").write_text(text)
    assert len(load_experiment(tmp_path / "exp.yaml").points()) == 6


@pytest.mark.parametrize("override", OVERRIDES)
def test_a_set_of_the_page_is_taken(override: str) -> None:
    assert load_experiment(DEMO, shlex.split(override)).points()
