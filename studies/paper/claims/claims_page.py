"""Write ``claims.md``: every claim with its reproduction, and the speed-up of Atlas over each single-TCP baseline."""

from collections.abc import Sequence

from studies.paper.claims.claim import PaperClaim
from studies.paper.claims.speed_up import FARTHEST, SpeedUp
from wanbed.results.text import UNKNOWN, markdown_text, ratio_text, seconds_text, table_line

NOT_RUN = "not run"
EXPLANATION = (
    "Of the paper (Palak et al., arXiv 2411.14458) only its abstract, its contents and the captions of its Figures 1 "
    "to 5 were at hand. A claim of these is marked *paper*; a figure quoted from memory is marked *recalled*; an "
    "expectation that this project had before it measured is marked *ours*."
)
SPEED_UP_EXPLANATION = (
    "Iteration time of each baseline that talks over one TCP connection a boundary, over that of Atlas, at "
    f"{FARTHEST} one-way. *atlas* has Linux's default settings, as the untuned baselines do; *no idle restart* keeps "
    "its windows open when it pauses (net.ipv4.tcp_slow_start_after_idle=0), as two of the tuned baselines do."
)


def claims_page(claims: Sequence[PaperClaim], speed_ups: Sequence[SpeedUp], how: str) -> str:
    """Return the page. ``how`` describes the origin of the figures in a sentence or two."""
    return "\n".join(
        [
            "# The paper's claims\n",
            f"{how}\n",
            f"{EXPLANATION}\n",
            claims_table(claims),
            "## Atlas against every baseline over a single connection\n",
            f"{SPEED_UP_EXPLANATION}\n",
            speed_up_table(speed_ups),
        ]
    )


def claims_table(claims: Sequence[PaperClaim]) -> str:
    """Return a Markdown table with a row for each claim."""
    columns = ["", "claim", "source", "claimed", "reproduced", "ratio", "why they differ, or what it holds"]
    lines = [table_line(columns), table_line([*["---"] * 5, "---:", "---"])]
    lines += [
        table_line(
            [
                *map(markdown_text, (claim.topic, claim.statement, claim.source, claim.claimed)),
                NOT_RUN if claim.reproduced is None else markdown_text(claim.reproduced),
                "" if claim.ratio is None else f"{claim.ratio:.2f}",
                markdown_text(claim.why),
            ]
        )
        for claim in claims
    ]
    return "\n".join(lines) + "\n"


def speed_up_table(speed_ups: Sequence[SpeedUp]) -> str:
    """Return a Markdown table with a row for each training and baseline."""
    lines = [
        table_line(["training", "baseline", "its iteration", "atlas", "atlas, no idle restart"]),
        table_line(["---", "---", "---:", "---:", "---:"]),
    ]
    lines += [
        table_line(
            [
                *map(markdown_text, (each.headline, each.baseline)),
                seconds_text(each.baseline_s),
                *(UNKNOWN if ratio is None else ratio_text(ratio) for ratio in (each.atlas, each.tuned_atlas)),
            ]
        )
        for each in speed_ups
    ]
    return "\n".join(lines) + "\n"
