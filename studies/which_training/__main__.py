"""``make which-training``: price every method at every WAN, and bring ``docs/which-training.md`` up to date."""

from pathlib import Path
from typing import Annotated

import typer

from studies.which_training.grid import Grid, priced
from studies.which_training.grid_tables import example_text, map_text
from studies.which_training.learning import LossTimes, learning_text, learnt
from studies.which_training.marked_page import write_part
from studies.which_training.picture import draw
from studies.which_training.setting import WANS, Method, Wan, candidates
from studies.which_training.virtual_check import check_text, checked
from wanbed.runner.cli.exit_status import log, one_line_errors

PAGE = Path("docs/which-training.md")
PICTURE = "which-training.png"
NOT_LEARNT = "Not measured for this version of the page, which was made with `--map-only`."
EXAMPLE = Wan(50, 1_000_000_000)


def which_training(
    *,
    map_only: Annotated[
        bool, typer.Option("--map-only", help="Leave out what is learnt, and what is checked in virtual time.")
    ] = False,
    runs: Annotated[Path, typer.Option("--runs", metavar="DIR", help="Where results are kept.")] = Path(
        "runs/which-training"
    ),
    page: Annotated[Path, typer.Option("--page", metavar="FILE", help="The page to bring up to date.")] = PAGE,
) -> None:
    """Say which way to train is fastest where, and write the tables and the picture.

    What was finished before is not run again.
    """
    with one_line_errors():
        tried = [candidate for wan in WANS for method in Method for candidate in candidates(method, wan)]
        grid = Grid.of(priced(tried, runs / "simulated", log))
        curves = [] if map_only else learnt(runs / "learnt", log)
        draw(grid, curves, page.parent / PICTURE)
        write_part(page, "map", map_text(grid))
        write_part(page, "losses", learning_text(LossTimes.of(grid, curves)) if curves else NOT_LEARNT)
        write_part(page, "check", NOT_LEARNT if map_only else check_text(checked(grid, runs / "checked", log)))
        write_part(page, "example", example_text(EXAMPLE))
        print(page)


if __name__ == "__main__":
    typer.run(which_training)
