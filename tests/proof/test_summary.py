"""The last lines of a proof name all that was not shown, with counts."""

from tests.proof.record import PassRecord
from tests.proof.summary import summary_lines


def test_everything_that_was_not_shown_is_counted_and_named() -> None:
    side_by_side = PassRecord(
        name="side by side",
        seconds=600.4,
        passed=9000,
        failed=["test_a.py::test_a"],
        skipped={"no kernel substrate: no sch_netem": ["test_b.py::test_b", "test_b.py::test_c"]},
        left_to_the_soak=300,
    )
    measuring = PassRecord(
        name="measuring",
        seconds=200.0,
        passed=40,
        skipped={"cut off: no time left": ["test_d.py::test_d"]},
        tried_twice=["test_e.py::test_e"],
        left_to_the_soak=20,
    )
    assert list(summary_lines([side_by_side, measuring])) == [
        "side by side: 9000 passed, 1 failed in 600 s",
        "measuring: 40 passed, 0 failed in 200 s",
        "failed: 1",
        "  test_a.py::test_a",
        "skipped: 2",
        "  2 no kernel substrate: no sch_netem",
        "tried twice: 1",
        "  test_e.py::test_e",
        "cut off: 1",
        "  test_d.py::test_d",
        "left to the soak: 320",
    ]
