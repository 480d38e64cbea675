"""Compare the paper's claims with the measured outcomes, and write ``claims.md``.

Only the paper's abstract, contents and captions were available. A figure quoted from memory is marked as recalled.
Expectations of this project come from an early event sketch, which models nothing of TCP but the window.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from studies.paper.outcome import Outcomes
from wanbed.flow.line import FRAME_BYTES, PAYLOAD_BYTES
from wanbed.results.text import UNKNOWN, markdown_text, percent_text, rate_text, ratio_text, seconds_text, table_line


class ClaimSource(StrEnum):
    """The origin of a claimed figure. Only the paper's abstract, contents and captions were available."""

    PAPER = "paper"
    RECALLED = "recalled"
    OURS = "ours"


@dataclass(frozen=True)
class PaperClaim:
    """One claim, with ``claimed`` and ``reproduced`` as text; ``reproduced`` is None if it was not run.

    ``ratio`` is reproduced / claimed, None without figures. ``why`` explains why they differ, or what the figure
    includes.
    """

    topic: str
    statement: str
    source: ClaimSource
    claimed: str
    reproduced: str | None
    ratio: float | None
    why: str


FARTHEST = "40ms"

ATLAS, TUNED_ATLAS = "atlas", "atlas, no idle restart"

UNTUNED = ("gpipe", "megatron", "varuna")
"""The baselines of the paper."""

TUNED = ("varuna, large window", "varuna, large window, no idle restart", "varuna, bbr")
"""The baselines whose single connection is tuned as far as possible."""


@dataclass(frozen=True)
class Headline:
    """A training for which Atlas and its baselines were measured. Its variants may be in several parts."""

    title: str
    parts: tuple[str, ...]


HEADLINES = (
    Headline("GPT-A, 6 stages, 2 pipelines", ("headline-gpt-a", "headline-gpt-a-fair")),
    Headline("GPT-B, 6 stages, 2 pipelines", ("headline-gpt-b", "headline-gpt-b-fair")),
    Headline("GPT-A, 12 stages, 1 pipeline", ("headline-deep",)),
)


@dataclass(frozen=True)
class SpeedUp:
    """The speed-up of Atlas over one baseline, at 40 ms.

    ``baseline_s`` is an iteration time. ``atlas`` and ``tuned_atlas`` are the baseline's time / Atlas's, None if not
    run.
    """

    headline: str
    baseline: str
    baseline_s: float
    atlas: float | None
    tuned_atlas: float | None

    @property
    def most(self) -> float:
        """The larger of the two ratios, 0 if Atlas was not run."""
        return max(self.atlas or 0.0, self.tuned_atlas or 0.0)


def speed_ups(outcomes: Outcomes, headlines: Sequence[Headline] = HEADLINES) -> list[SpeedUp]:
    """Return a speed-up for each single-TCP baseline that was measured at 40 ms, training by training."""
    found = []
    for headline in headlines:
        times_s = {
            variant: outcome.iteration_time_s
            for variant in (*UNTUNED, *TUNED, ATLAS, TUNED_ATLAS)
            if (outcome := outcomes.find(headline.parts, variant, FARTHEST)) is not None
        }
        for baseline in (*UNTUNED, *TUNED):
            baseline_s = times_s.get(baseline)
            if baseline_s is not None:
                ratios = [
                    baseline_s / atlas_s if (atlas_s := times_s.get(name)) else None for name in (ATLAS, TUNED_ATLAS)
                ]
                found.append(SpeedUp(headline.title, baseline, baseline_s, *ratios))
    return found


MBPS = 1e6

RECALLED_SINGLE_BPS = {"10ms": 1220 * MBPS, "20ms": 600 * MBPS, "30ms": 396 * MBPS, "40ms": 293 * MBPS}

RECALLED_CAP_BPS = 5e9

CAP_GOODPUT_BPS = RECALLED_CAP_BPS * PAYLOAD_BYTES / FRAME_BYTES

CLAIMED_SPEED_UP = 17.0

CLAIMED_UTILIZATION = 0.94

SKETCHED_S = {"gpipe": 31.8, "megatron": 18.1, "varuna": 18.1, "varuna, many connections": 2.2, "atlas": 2.1}
"""Iteration times of GPT-A at 40 ms in the event sketch."""

NEAREST = "1ms"

ALIKE = 0.05
"""Figures whose ratio differs from 1 by no more than this are reported as the same."""

HEADLINE, BUBBLETEA = "headline-gpt-a", "headline-bubbletea"

ALONE, WITH_PREFILL = "training alone", "bubbletea"


def claims(outcomes: Outcomes) -> list[PaperClaim]:
    """Return every claim: those of the figures in order, the headline, then this project's expectations."""
    return [
        *_single_tcp(outcomes),
        *_many_connections(outcomes),
        _slows(outcomes, "Figure 2", "fig2-dp-latency", "one connection", "data parallelism over the WAN"),
        _does_not_slow(outcomes),
        _slows(outcomes, "Figure 3", "fig3-pp-latency", "varuna", "pipelines over one connection (Varuna)"),
        _bubbles(outcomes),
        _speed_up(speed_ups(outcomes)),
        *_utilization(outcomes),
        _semantics(),
        *_sketch(outcomes),
    ]


def _single_tcp(outcomes: Outcomes) -> list[PaperClaim]:
    found = []
    for latency, claimed_bps in RECALLED_SINGLE_BPS.items():
        outcome = outcomes.find("fig5-tcp-bandwidth", "one connection", latency)
        goodput_bps = None if outcome is None else outcome.steady_goodput_bps
        ratio = None if goodput_bps is None else goodput_bps / claimed_bps
        found.append(
            PaperClaim(
                "Figure 5",
                f"one TCP connection at {latency}",
                ClaimSource.RECALLED,
                rate_text(claimed_bps),
                None if goodput_bps is None else rate_text(goodput_bps),
                ratio,
                _apart(
                    ratio,
                    "one window a round trip, here the 2.94 MiB that Linux 6.1 has in flight of a buffer of 6 MiB",
                ),
            )
        )
    return found


def _many_connections(outcomes: Outcomes) -> list[PaperClaim]:
    found = []
    for latency in RECALLED_SINGLE_BPS:
        outcome = outcomes.find("fig5-tcp-bandwidth", "many connections", latency)
        goodput_bps = None if outcome is None else outcome.steady_goodput_bps
        found.append(
            PaperClaim(
                "Figure 5",
                f"many TCP connections at {latency}",
                ClaimSource.RECALLED,
                rate_text(RECALLED_CAP_BPS),
                None if goodput_bps is None else rate_text(goodput_bps),
                None if goodput_bps is None else goodput_bps / RECALLED_CAP_BPS,
                f"{rate_text(RECALLED_CAP_BPS)} on the wire carry {rate_text(CAP_GOODPUT_BPS)} of payload at MTU 1500; "
                "transfers overlap, and what has come of the next one before the first arrival counts after it",
            )
        )
    return found


def _slows(outcomes: Outcomes, figure: str, part: str, variant: str, what: str) -> PaperClaim:
    return PaperClaim(
        figure,
        f"{what} slows down with latency",
        ClaimSource.PAPER,
        "slower",
        _slowdown(outcomes, part, variant),
        None,
        "the paper's model and times are not at hand: the shape is compared, not the figures",
    )


def _does_not_slow(outcomes: Outcomes) -> PaperClaim:
    return PaperClaim(
        "Figure 2",
        "the same over many connections",
        ClaimSource.OURS,
        "hardly slower",
        _slowdown(outcomes, "fig2-dp-latency", "many connections"),
        None,
        "what is left is slow start after each pause, once an iteration",
    )


def _bubbles(outcomes: Outcomes) -> PaperClaim:
    outcome = outcomes.find("fig4-timeline", "varuna")
    busy = None if outcome is None else outcome.gpu_utilization
    return PaperClaim(
        "Figure 4",
        "Varuna at 40 ms and L,H = 6K,8K leaves long bubbles",
        ClaimSource.PAPER,
        "long bubbles",
        None if busy is None else f"GPUs idle for {percent_text(1 - busy)} of the time",
        None,
        "one pipeline of 6 stages, 4 microbatches",
    )


def _speed_up(found: Sequence[SpeedUp]) -> PaperClaim:
    best = max(found, key=lambda each: each.most, default=None)
    if best is None or not best.most:
        return PaperClaim("Headline", "up to 17 times faster training", ClaimSource.PAPER, "17x", None, None, "")
    tuned = best.tuned_atlas is not None and best.tuned_atlas >= (best.atlas or 0)
    return PaperClaim(
        "Headline",
        "up to 17 times faster training",
        ClaimSource.PAPER,
        ratio_text(CLAIMED_SPEED_UP),
        f"{ratio_text(best.most)}: {best.headline}, {TUNED_ATLAS if tuned else ATLAS} against {best.baseline}",
        best.most / CLAIMED_SPEED_UP,
        "the largest of the table below: it grows with the time of a transfer over that of computation, and shrinks to "
        "little where the single connection is tuned",
    )


def _utilization(outcomes: Outcomes) -> list[PaperClaim]:
    alone, filled = (outcomes.find(BUBBLETEA, variant, FARTHEST) for variant in (ALONE, WITH_PREFILL))
    busy = None if filled is None else filled.gpu_utilization_with_prefill
    impact = None
    if alone is not None and filled is not None and alone.iteration_time_s and filled.iteration_time_s:
        impact = filled.iteration_time_s / alone.iteration_time_s
    overruns = None if filled is None else filled.deadline_overruns
    return [
        PaperClaim(
            "Headline",
            "up to 94 % GPU utilization with prefill in the bubbles",
            ClaimSource.PAPER,
            percent_text(CLAIMED_UTILIZATION),
            None if busy is None else percent_text(busy),
            None if busy is None else busy / CLAIMED_UTILIZATION,
            "asked for more requests than bubbles hold; what is left empty is the margin before each bubble's end",
        ),
        PaperClaim(
            "Headline",
            "training does not notice the prefill",
            ClaimSource.PAPER,
            "no impact",
            None
            if impact is None
            else f"iteration time {impact:.4f} of that without, "
            f"{'unknown' if overruns is None else overruns} deadline overruns",
            None,
            "one pair of trials, whose iterations in virtual time differ by nothing but the prefill",
        ),
    ]


def _semantics() -> PaperClaim:
    return PaperClaim(
        "Headline",
        "training semantics unchanged: no compression, no staleness",
        ClaimSource.PAPER,
        "unchanged",
        "losses and gradients of every schedule and transport equal plain torch's within 1e-5",
        None,
        "shown with real computation by tests/system/training/test_training_semantics.py, not in virtual time",
    )


def _sketch(outcomes: Outcomes) -> list[PaperClaim]:
    found = []
    for variant, sketched_s in SKETCHED_S.items():
        outcome = outcomes.find(HEADLINE, variant, FARTHEST)
        time_s = None if outcome is None else outcome.iteration_time_s
        ratio = None if time_s is None else time_s / sketched_s
        found.append(
            PaperClaim(
                "Expectation",
                f"GPT-A at {FARTHEST}: {variant}",
                ClaimSource.OURS,
                seconds_text(sketched_s),
                None if time_s is None else seconds_text(time_s),
                ratio,
                _apart(ratio, "the sketch knows no slow start, which each pause of a connection brings back"),
            )
        )
    return found


def _slowdown(outcomes: Outcomes, part: str, variant: str) -> str | None:
    near, far = (outcomes.find(part, variant, latency) for latency in (NEAREST, FARTHEST))
    if near is None or far is None or not near.iteration_time_s or not far.iteration_time_s:
        return None
    return f"{ratio_text(far.iteration_time_s / near.iteration_time_s)} the time at {FARTHEST} as at {NEAREST}"


def _apart(ratio: float | None, cause: str) -> str:
    return "the same within 5 %" if ratio is not None and abs(ratio - 1) <= ALIKE else cause


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
