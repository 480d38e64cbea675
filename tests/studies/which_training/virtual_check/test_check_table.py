"""What was checked is told setting by setting, the worst by its name."""

from studies.which_training.setting import Method, Wan
from studies.which_training.virtual_check.check_table import check_text
from studies.which_training.virtual_check.checking import Checked

WAN = Wan(10, 1_000_000_000)
AGREES = Checked(WAN, Method.VARUNA, "one connection", 2.0, 2.02, ())
DOES_NOT = Checked(WAN, Method.ATOM, "ring", 1.0, 0.9, ("full-trunk", "rings"))


def test_a_setting_has_both_times_its_miss_and_what_is_known_of_it() -> None:
    text = check_text([AGREES, DOES_NOT]).replace("\N{NO-BREAK SPACE}", " ")
    assert "| 10 ms, 1 Gbit/s | Varuna, one connection | 2.00 s | 2.02 s | +1.0% | none |" in text
    assert "| 10 ms, 1 Gbit/s | ATOM, ring | 1.00 s | 900 ms | -10.0% | full-trunk and rings |" in text


def test_the_last_line_counts_what_agrees_and_names_the_worst() -> None:
    assert check_text([AGREES, DOES_NOT]).endswith(
        "Of 2 settings 1 agree within 5%; the median is off by 5.5%, the worst by -10.0% (ATOM, 10 ms)."
    )
