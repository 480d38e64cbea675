from wanbed.runner.validation.check import LawCheck


def test_a_check_is_exact_only_to_the_nanosecond() -> None:
    assert LawCheck("case", "law", (100, 200), (100, 200)).exact
    assert not LawCheck("case", "law", (100, 200), (100, 201)).exact
    assert not LawCheck("case", "law", (100, 200), (100,)).exact
