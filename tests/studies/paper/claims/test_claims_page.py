from studies.paper.claims.claim import ClaimSource, PaperClaim
from studies.paper.claims.claims_page import claims_page, claims_table, speed_up_table
from studies.paper.claims.speed_up import SpeedUp

RUN = PaperClaim("Figure 5", "one | connection", ClaimSource.RECALLED, "293 Mbit/s", "300 Mbit/s", 1.024, "the window")
NOT_RUN = PaperClaim("Headline", "faster", ClaimSource.PAPER, "17x", None, None, "")
SPEED_UP = SpeedUp("GPT-A", "gpipe", 30.0, 12.0, None)


def points(line: str) -> list[str]:
    return [point.strip() for point in line.strip("| ").split(" | ")]


def test_every_claim_is_a_row() -> None:
    rows = claims_table([RUN, NOT_RUN]).splitlines()[2:]
    assert points(rows[0]) == [
        "Figure 5", "one &#124; connection", "recalled", "293 Mbit/s", "300 Mbit/s", "1.02", "the window",
    ]  # fmt: skip
    assert "| not run |" in rows[1]


def test_every_baseline_is_a_row_and_what_was_not_run_is_not_invented() -> None:
    (row,) = speed_up_table([SPEED_UP]).splitlines()[2:]
    assert points(row) == ["GPT-A", "gpipe", "30.0\u00a0s", "12.0x", "n/a"]


def test_the_page_says_what_its_figures_are_of_and_what_the_marks_mean() -> None:
    page = claims_page([RUN], [SPEED_UP], "Measured in virtual time.")
    assert page.startswith("# The paper's claims\n\nMeasured in virtual time.\n")
    for mark in ("*paper*", "*recalled*", "*ours*"):
        assert mark in page
    assert "## Atlas against every baseline over a single connection" in page
