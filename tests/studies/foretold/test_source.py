from pathlib import Path

import pytest
from pydantic import ValidationError

import wanbed
from studies.foretold.source import PUBLISHED, Form, Group, Source, sources

SOURCES = sources()


def form(name: str, counted: str, **fields: str) -> Form:
    return Form.model_validate(
        {"name": name, "counted": counted, "why": "-", "experiment": "e.yaml", "variant": "v", **fields}
    )


def group(*forms: Form) -> Group:
    return Group(name="g", title="g", table="t.csv", shown=("a",), forms=forms)


def written(folder: Path, table: str, forms: str) -> Source:
    (folder / "t.csv").write_text(table)
    (folder / "source.yaml").write_text(
        "title: t\norigin: o\ninputs: []\nnot_published: []\n"
        f"groups:\n  - {{name: g, title: g, table: t.csv, shown: [nodes, delay], forms: [{forms}]}}\n"
    )
    return Source.read(folder)


def test_a_form_says_each_row_in_the_words_of_its_table(tmp_path: Path) -> None:
    source = written(
        tmp_path,
        "# from table 1\nnodes,delay,flushes,published\n4,10ms,3,1.5\n8,5ms,1,2.5\n",
        '{name: f, counted: foretold, why: w, experiment: "$nodes.yaml", variant: "v$nodes", times: "[$flushes, 1]", '
        'per: "$nodes", values: {training.pipelines: $nodes, "topology.wan.latency": $delay}}',
    )
    first, second = source.rows
    assert (first.label, first.published, first.variant) == ("4, 10ms", 1.5, "v4")
    assert first.experiment == tmp_path / "4.yaml"
    assert first.values == {"training.pipelines": 4, "topology.wan.latency": "10ms"}
    assert first.weights == (0.75, 0.25)
    assert (second.published, second.weights) == (2.5, (0.125, 0.125))


def test_each_row_is_said_in_every_form(tmp_path: Path) -> None:
    one = "{name: a, counted: foretold, why: w, experiment: e.yaml, variant: v}"
    other = "{name: b, counted: explained, why: w, experiment: e.yaml, variant: v}"
    source = written(tmp_path, "nodes,delay,published\n4,1ms,1\n8,1ms,2\n", f"{one}, {other}")
    assert [(row.label, row.form.name) for row in source.rows] == [
        ("4, 1ms", "a"), ("4, 1ms", "b"), ("8, 1ms", "a"), ("8, 1ms", "b"),
    ]  # fmt: skip


def test_no_two_forms_of_a_group_count_alike() -> None:
    group(form("a", "foretold"), form("b", "explained"), form("c", "tried"))
    for kind in ("foretold", "explained"):
        with pytest.raises(ValidationError, match="one form is foretold"):
            group(form("a", kind), form("b", kind))
    with pytest.raises(ValidationError, match="one form is foretold"):
        group(form("a", "tried"))
    group(form("a", "foretold"), form("b", "misread"))
    with pytest.raises(ValidationError, match="one form is misread at most"):
        group(form("a", "explained"), form("b", "misread"))
    with pytest.raises(ValidationError, match="one form is misread at most"):
        group(form("a", "foretold"), form("b", "misread"), form("c", "misread"))
    with pytest.raises(ValidationError, match="same name"):
        group(form("a", "foretold"), form("a", "tried"))


def test_a_column_that_the_table_has_not_is_refused(tmp_path: Path) -> None:
    one = "{name: a, counted: foretold, why: w, experiment: $file, variant: v}"
    (row,) = written(tmp_path, "nodes,delay,published\n4,1ms,1\n", one).rows
    with pytest.raises(KeyError, match="file"):
        _ = row.experiment


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.folder.name)
def test_every_form_of_a_source_is_an_experiment_that_wanbed_accepts(source: Source) -> None:
    assert source.text.inputs
    assert all(row.published > 0 and row.label for row in source.rows)
    # Rows of a form differ in values alone: the last of each file stands for all.
    for row in {(row.group.name, row.form.name, row.experiment): row for row in source.rows}.values():
        experiment = wanbed.Experiment.from_file(row.experiment, row.values)
        assert row.variant in experiment.variants
        assert len(experiment.sweep_points) == len(row.weights)
        assert PUBLISHED not in row.group.shown


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.folder.name)
def test_every_file_of_a_source_is_of_some_row(source: Source) -> None:
    groups = source.text.groups
    used = {row.experiment for row in source.rows} | {source.folder / each.table for each in groups}
    used |= {source.folder / each.emulated.table for each in groups if each.emulated is not None}
    assert {*source.folder.iterdir()} == used | {source.folder / "source.yaml"}
