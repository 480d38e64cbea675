"""Report what killed runs left on this machine, before another network is built."""

from wanbed.runner.cli.log_line import log
from wanbed.testbed.claims.leftovers import leftovers_text


def report_leftovers() -> None:
    """Print one line to standard error if a killed run left something."""
    if text := leftovers_text():
        log(text)
