"""Set up Jinja for every page that this project writes: its templates, and filters that format figures."""

from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from wanbed.results.text import percent_text, ratio_text, seconds_text, shortened, size_text


def page_environment(*folders: Path) -> Environment:
    """Return an environment that searches these folders for templates, then this package's; it escapes all values.

    ``report_macros.html.j2`` shows charts and tables; ``report_style.html.j2`` is the style sheet of all pages.
    """
    environment = Environment(
        loader=FileSystemLoader([*folders, Path(__file__).parent / "templates"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    texts: tuple[Callable[..., str], ...] = (
        seconds_text,
        size_text,
        percent_text,
        ratio_text,
        shortened,
    )
    environment.filters |= {text.__name__: text for text in texts}
    return environment
