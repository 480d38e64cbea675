"""``wanbed`` whose reports have empty pictures, for tests that read its text: painting takes as long as a short run.

``python -m tests.support.runner.unpainted_wanbed ARGUMENT...`` is ``wanbed ARGUMENT...`` otherwise. That pictures are
painted, and what is in them, is tested in ``tests/results``; commands draw in ``tests/system/commands``.
"""

from markupsafe import Markup

from wanbed.results.report.charts import chart
from wanbed.runner.cli.command_line import main


def empty_picture(_paint: object, description: str, _salt: str, _width_px: int) -> Markup:
    """Return a picture of nothing, with its description."""
    return Markup('<svg role="img" aria-label="{}"></svg>').format(description)


def leave_pictures_empty() -> None:
    """Have this process paint none."""
    chart.__dict__["svg"] = empty_picture


if __name__ == "__main__":
    leave_pictures_empty()
    main()
