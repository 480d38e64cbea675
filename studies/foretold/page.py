"""Write the tables of ``docs/foretold.md``: what was published and simulated, group by group and row by row."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from studies.foretold.outcome import BAND, Outcome, Tally, as_first_read, counted
from studies.foretold.source import Group, Source
from wanbed.results.text import markdown_text, table_line, three_digits

BEGIN = "<!-- written by make foretold -->\n"
END = "<!-- end of what make foretold has written -->\n"

_KINDS = ("foretold", "explained")


def page_text(sources: Sequence[Source], outcomes: Sequence[Outcome], picture: str) -> str:
    """Return the picture, the summary, what cannot be said, and the rows of every source."""
    parts = [
        f"![Simulated over published figures, with the band of {BAND:.0%}]({picture})",
        "### Group by group",
        summary_text(outcomes),
        "### What cannot be said yet",
        missing_text(sources),
        *(part for source in sources for part in _source_parts(source, outcomes)),
    ]
    return "\n\n".join(parts) + "\n"


def summary_text(outcomes: Sequence[Outcome]) -> str:
    """Return a table with the groups of foretold rows and their total, then those of explained ones."""
    head = ["", "group", "rows", "median error", "worst", f"within {BAND:.0%}"]
    lines = [table_line(head), _rule(head)]
    for kind in _KINDS:
        own = counted(outcomes, kind)
        if not own:
            continue
        for group in dict.fromkeys(outcome.row.group.title for outcome in own):
            lines.append(_tally_line(kind, group, [each for each in own if each.row.group.title == group]))
        lines.append(_tally_line(f"**{kind}**", "**all**", own))
        if kind == "foretold" and counted(outcomes, "misread"):
            lines.append(_tally_line("", "all, each text as it was first read", as_first_read(outcomes)))
    return "\n".join(lines)


def missing_text(sources: Iterable[Source]) -> str:
    """Return a table of the rows that need what wanbed has not."""
    head = ["source", "rows", "needs"]
    lines = [table_line(head), _rule(head)]
    for source in sources:
        for missing in source.text.cannot_say:
            lines.append(table_line([source.text.title, missing.rows, missing.feature]))
    return "\n".join(lines)


def _source_parts(source: Source, outcomes: Sequence[Outcome]) -> list[str]:
    text = source.text
    parts = [f"## {text.title}", _filled(f"{text.origin}. Files: `studies/foretold/sources/{source.folder.name}`.")]
    inputs = [f"- **{each.input}**: {each.where}" for each in text.inputs]
    parts.append("\n".join(map(_item, inputs)))
    parts.append("Not published:")
    parts.append("\n".join(_item(f"- {each}") for each in text.not_published))
    for group in text.groups:
        own = [outcome for outcome in outcomes if outcome.row.group == group and outcome.row.folder == source.folder]
        if own:
            misses = _filled(f"Misses: {group.misses.strip()}")
            parts += [f"### {group.title}", _forms_text(group, own), misses, _rows(group, own)]
            parts += _emulated_parts(group, source.emulated_figures(group), own)
    return parts


def _emulated_parts(group: Group, figures: Mapping[str, float], outcomes: Sequence[Outcome]) -> list[str]:
    """Return a sentence and a table of the rows that were emulated too: published, emulated, simulated."""
    emulated = group.emulated
    if emulated is None or not figures:
        return []
    head = [_label_of(group), f"published ({group.unit})", "emulated", "error", "simulated", "error"]
    head.append("simulated over emulated")
    lines = [table_line(head), _rule(head)]
    for outcome in outcomes:
        if outcome.row.form.name != emulated.form or outcome.row.label not in figures:
            continue
        figure, published = figures[outcome.row.label], outcome.row.published
        cells = [outcome.row.label, three_digits(published), three_digits(figure), f"{figure / published - 1:+.1%}"]
        cells += [three_digits(outcome.simulated), f"{outcome.error:+.1%}", f"{outcome.simulated / figure - 1:+.1%}"]
        lines.append(table_line([markdown_text(cell) for cell in cells]))
    return [
        _filled(f'Emulated in virtual time, in the form "{emulated.form}": {emulated.how.strip()}'),
        "\n".join(lines),
    ]


def _forms_text(group: Group, outcomes: Sequence[Outcome]) -> str:
    head = ["form", "counts as", "median error", "worst", f"within {BAND:.0%}", "why"]
    lines = [table_line(head), _rule(head)]
    for form in group.forms:
        tally = Tally.of([each for each in outcomes if each.row.form == form])
        cells = [form.name, form.counted, *_figures(tally), form.why.strip()]
        lines.append(table_line([markdown_text(cell) for cell in cells]))
    return "\n".join(lines)


def _rows(group: Group, outcomes: Sequence[Outcome]) -> str:
    """Return a table of the rows, with the figures of each form that counts."""
    forms = [form for form in group.forms if form.counted in _KINDS]
    head = [_label_of(group), f"published ({group.unit})"]
    head += [cell for form in forms for cell in (form.name, "error")]
    lines = [table_line(head), _rule(head)]
    by_form = [[each for each in outcomes if each.row.form == form] for form in forms]
    for row in zip(*by_form, strict=True):
        cells = [row[0].row.label, three_digits(row[0].row.published)]
        cells += [cell for each in row for cell in (three_digits(each.simulated), f"{each.error:+.1%}")]
        lines.append(table_line([markdown_text(cell) for cell in cells]))
    return "\n".join(lines)


def _label_of(group: Group) -> str:
    return ", ".join(column.replace("_", " ") for column in group.shown)


def _tally_line(kind: str, group: str, outcomes: Sequence[Outcome]) -> str:
    tally = Tally.of(outcomes)
    return table_line([kind, group, str(tally.rows), *_figures(tally)])


def _figures(tally: Tally) -> list[str]:
    return [f"{tally.median:.1%}", f"{tally.worst:+.1%}", f"{tally.met} ({tally.share_met:.0%})"]


def _rule(head: Sequence[str]) -> str:
    return table_line(["---"] * len(head))


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _item(text: str) -> str:
    return textwrap.fill(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
