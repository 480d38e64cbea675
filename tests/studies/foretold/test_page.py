from pathlib import Path

from studies.foretold.__main__ import PAGE
from studies.foretold.page import BEGIN, END, page_text, summary_text
from studies.foretold.picture import draw
from studies.foretold.source import Input, Missing, Source, SourceText, sources
from tests.studies.foretold.outcomes import outcome

OUTCOMES = [
    outcome(2.0, 2.02, label="near"),
    outcome(3.0, 6.0, label="far"),
    outcome(2.0, 2.08, counted="explained", label="near"),
    outcome(3.0, 2.94, counted="explained", label="far"),
    outcome(2.0, 1.0, counted="tried", label="near"),
    outcome(3.0, 1.5, counted="tried", label="far"),
]

SOURCE = Source(
    Path("s"),
    SourceText(
        title="Somebody",
        origin="A paper",
        inputs=(Input(input="latency", where="table 1"),),
        not_published=("the window",),
        cannot_say=(Missing(rows="four rows", feature="jumbo frames"),),
        groups=(OUTCOMES[0].row.group,),
    ),
)


def test_the_summary_counts_foretold_and_explained_rows_apart_and_tried_ones_not_at_all() -> None:
    lines = summary_text(OUTCOMES).splitlines()
    assert lines[2:] == [
        "| foretold | Group | 2 | 50.5% | +100.0% | 1 (50%) |",
        "| **foretold** | **all** | 2 | 50.5% | +100.0% | 1 (50%) |",
        "| explained | Group | 2 | 3.0% | +4.0% | 2 (100%) |",
        "| **explained** | **all** | 2 | 3.0% | +4.0% | 2 (100%) |",
    ]


def test_a_second_reading_has_the_first_one_s_total_beside_it() -> None:
    kinds = ("foretold", "misread")
    again = [outcome(2.0, 2.0, kinds=kinds), outcome(2.0, 1.0, counted="misread", kinds=kinds)]
    assert summary_text([*OUTCOMES, *again]).splitlines()[3:5] == [
        "| **foretold** | **all** | 3 | 1.0% | +100.0% | 2 (67%) |",
        "|  | all, each text as it was first read | 3 | 50.0% | +100.0% | 1 (33%) |",
    ]


def test_the_page_has_each_row_each_form_and_what_cannot_be_said() -> None:
    text = page_text([SOURCE], OUTCOMES, "picture.png")
    assert "| near | 2.00 | 2.02 | +1.0% | 2.08 | +4.0% |" in text
    assert "| far | 3.00 | 6.00 | +100.0% | 2.94 | -2.0% |" in text
    assert "| tried form | tried | 50.0% | -50.0% | 0 (0%) | - |" in text
    assert "| Somebody | four rows | jumbo frames |" in text
    assert "- **latency**: table 1" in text
    assert "- the window" in text


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    draw(OUTCOMES, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_names_every_source_and_group() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert BEGIN in text
    assert END in text
    for source in sources():
        assert f"## {source.text.title}" in text
        for group in source.text.groups:
            assert f"### {group.title}" in text
