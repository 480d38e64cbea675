"""``make foretold``: simulate what others have published, and bring ``docs/foretold.md`` up to date."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from studies.foretold.page import BEGIN, END, page_text
from studies.foretold.picture import draw
from studies.foretold.simulation import simulated
from studies.foretold.source import sources
from wanbed.ground.files import with_marked_text, write_whole
from wanbed.runner.cli.exit_status import log, one_line_errors

PAGE = Path("docs/foretold.md")
PICTURE = "foretold.png"


def foretold(
    *,
    page: Annotated[Path, typer.Option("--page", metavar="FILE", help="The page to bring up to date.")] = PAGE,
) -> None:
    """Simulate every published row in every form, and write the tables and the picture."""
    with one_line_errors(), TemporaryDirectory(prefix="foretold-") as runs:
        every = sources()
        outcomes = simulated([row for source in every for row in source.rows], Path(runs), log)
        draw(outcomes, page.parent / PICTURE)
        text = page_text(every, outcomes, PICTURE)
        write_whole(page, with_marked_text(page.read_text(encoding="utf-8"), BEGIN, END, text))
        print(page)


if __name__ == "__main__":
    typer.run(foretold)
