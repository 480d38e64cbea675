"""Write a learnt link as one self-contained HTML page."""

from pathlib import Path

from wanbed.ground.files.atomic_write import write_whole
from wanbed.results.report.page_templates import page_environment
from wanbed.results.text import isolated, visible
from wanbed.runner.learnt_links.held_out import LearntLink
from wanbed.runner.learnt_links.link_charts import STYLES, link_charts
from wanbed.runner.learnt_links.link_document import facts, rows
from wanbed.runner.learnt_links.replay.outcome import QUANTILES

_TEMPLATE = "learnt_link.html.j2"


def write_link_page(learnt: LearntLink, source: str, remarks: list[str], destination: Path) -> None:
    """Write the page of a link that was learnt from ``source``; ``remarks`` are printed first."""
    page = (
        page_environment(Path(__file__).parent)
        .get_template(_TEMPLATE)
        .render(
            source=source,
            remarks=remarks,
            facts=facts(learnt),
            quantiles=[f"p{round(100 * each)}" for each in QUANTILES],
            rows=rows(learnt),
            styles=STYLES,
            charts=link_charts(learnt),
        )
    )
    write_whole(destination, isolated(visible(page)))
