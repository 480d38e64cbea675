from pathlib import Path

import pytest

from studies.foretold import emulation
from studies.foretold.emulation import emulate
from studies.foretold.outcome import Outcome
from studies.foretold.page import page_text
from studies.foretold.source import Row, Source

SOURCE = """
title: t
origin: o
inputs: []
not_published: []
groups:
  - name: g
    title: Group
    table: t.csv
    shown: [nodes, delay]
    forms:
      - {name: ring, counted: foretold, why: w, experiment: e.yaml, variant: v, values: {a: $nodes, b: "1", c.d: "1"}}
      - {name: other, counted: tried, why: w, experiment: e.yaml, variant: v}
    emulated: {form: ring, rows: {nodes: ["4", "8"]}, values: {b: "2", c: "[3]"}, how: as it is, table: emulated.csv}
"""
EXPECTED = "nodes,delay,emulated\n4,1ms,2\n8,1ms,2.5\n"


@pytest.fixture
def source(tmp_path: Path) -> Source:
    (tmp_path / "source.yaml").write_text(SOURCE)
    (tmp_path / "t.csv").write_text("nodes,delay,published\n4,1ms,1\n8,1ms,2\n16,1ms,4\n")
    return Source.read(tmp_path)


def test_rows_that_have_no_figure_are_emulated_with_the_values_of_an_emulation(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    (group,) = source.text.groups
    asked: list[Row] = []

    def figure(row: Row, _: Path) -> float:
        asked.append(row)
        return {"4": 2.0, "8": 2.5}[row.cells["nodes"]]

    monkeypatch.setattr(emulation, "emulated_figure", figure)
    (source.folder / "emulated.csv").write_text("nodes,delay,emulated\n4,1ms,2.0\n")
    emulate(source, group, source.folder)
    assert [(row.label, row.values) for row in asked] == [("8, 1ms", {"a": 8, "b": 2, "c": [3]})]
    assert (source.folder / "emulated.csv").read_text() == EXPECTED
    emulate(source, group, source.folder)
    assert len(asked) == 1


def test_the_page_has_what_was_published_emulated_and_simulated(source: Source) -> None:
    outcomes = [Outcome(row, 2 * row.published) for row in source.rows]
    assert "Emulated" not in page_text([source], outcomes, "picture.png")
    (source.folder / "emulated.csv").write_text(EXPECTED)
    text = page_text([source], outcomes, "picture.png")
    assert 'Emulated in virtual time, in the form "ring": as it is' in text
    assert "| 4, 1ms | 1.00 | 2.00 | +100.0% | 2.00 | +100.0% | +0.0% |" in text
    assert "| 8, 1ms | 2.00 | 2.50 | +25.0% | 4.00 | +100.0% | +60.0% |" in text
    assert "| 16, 1ms |" not in text.split("Emulated")[1]


def test_a_form_that_the_group_has_not_is_refused(source: Source) -> None:
    written = (source.folder / "source.yaml").read_text().replace("emulated: {form: ring", "emulated: {form: tree")
    (source.folder / "source.yaml").write_text(written)
    with pytest.raises(ValueError, match="'tree' is emulated, and is no form"):
        Source.read(source.folder)
