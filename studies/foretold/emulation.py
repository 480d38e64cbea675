"""``make foretold-emulated``: emulate some published rows in virtual time, and keep their figures beside their sources.

A row that the table of its source has already is left as it is: an emulation that is called again goes on.
"""

import csv
import io
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

import wanbed
from studies.foretold.simulation import figure_of, figures_of
from studies.foretold.source import EMULATED, FOLDER, Group, Row, Source, sources
from wanbed.ground.files import write_whole
from wanbed.runner.cli.exit_status import log, one_line_errors

_IN_VIRTUAL_TIME = {"engine": "emulate", "clock": "virtual", "dilation": 1, "repeats": 1}


def emulated_figure(row: Row, runs: Path) -> float:
    """Emulate the experiment of a row, of which its own variant alone. Return its figure."""
    experiment = wanbed.Experiment.from_file(row.experiment, {**row.values, **_IN_VIRTUAL_TIME})
    return figure_of(row, figures_of(wanbed.run(experiment, runs=runs), [row.form.column]))


def table_text(group: Group, rows: Sequence[Row], figures: Mapping[str, float]) -> str:
    """Return the table of a group's emulated figures, of the rows that have one, in the order of its own table."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*group.shown, EMULATED])
    for row in rows:
        if row.label in figures:
            writer.writerow([*(row.cells[column] for column in group.shown), f"{figures[row.label]:.5g}"])
    return text.getvalue()


def emulate(source: Source, group: Group, runs: Path) -> None:
    """Emulate the rows of a group that its table lacks, and write the table after each."""
    rows, figures = source.emulated(group), source.emulated_figures(group)
    assert group.emulated is not None
    for row in rows:
        if row.label in figures:
            continue
        log(f"foretold: {group.name}: {row.label} in virtual time")
        figures[row.label] = emulated_figure(row, runs)
        write_whole(source.folder / group.emulated.table, table_text(group, rows, figures))
        log(f"foretold: {group.name}: {row.label}: {figures[row.label]:.5g}, published {row.published:g}")


def emulations(
    groups: Annotated[list[str] | None, typer.Argument(help="The groups to emulate. Default: all.")] = None,
    *,
    folder: Annotated[Path, typer.Option("--sources", metavar="DIR", help="The folder of the sources.")] = FOLDER,
) -> None:
    """Emulate the rows that sources name for it and that have no emulated figure yet."""
    logging.getLogger("wanbed").setLevel(logging.ERROR)
    with one_line_errors(), TemporaryDirectory(prefix="foretold-") as runs:
        for source in sources(folder):
            for group in source.text.groups:
                if group.emulated is not None and (not groups or group.name in groups):
                    emulate(source, group, Path(runs))


if __name__ == "__main__":
    typer.run(emulations)
