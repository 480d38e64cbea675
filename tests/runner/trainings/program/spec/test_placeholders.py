import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.runner.trainings.program.spec.placeholders import PLACEHOLDERS, check_placeholders, filled, placeholders_in

VALUES = {name: f"<{name}>" for name in PLACEHOLDERS}


def test_a_placeholder_is_filled_wherever_it_stands_in_a_word() -> None:
    assert filled("--out=/tmp/{host}/{rank}.log", {"host": "east-0", "rank": "3"}) == "--out=/tmp/east-0/3.log"


def test_doubled_braces_stand_for_the_text_itself() -> None:
    assert filled("{{rank}} {rank}", {"rank": "3"}) == "{rank} 3"
    assert placeholders_in("{{rank}}") == set()


@pytest.mark.parametrize("word", ['{"a": {"b": 1}}', "print({1: 2})", "${HOME}", "{}", "{Rank}", "f'{x+1}'", "a{1,2}"])
def test_braces_around_anything_but_a_lower_case_name_stay(word: str) -> None:
    check_placeholders(word)
    assert filled(word, {}) == word


def test_a_misspelt_placeholder_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match=r"\{world_sze\} is no placeholder: did you mean 'world_size'"):
        check_placeholders("--n={world_sze}")


@given(st.text())
def test_a_word_that_is_accepted_can_be_filled(word: str) -> None:
    try:
        check_placeholders(word)
    except ValueError:
        return
    filled(word, VALUES)


@given(st.lists(st.sampled_from(PLACEHOLDERS)), st.text("abc {}", max_size=3))
def test_every_placeholder_of_a_word_is_named_and_replaced(names: list[str], between: str) -> None:
    between = between.replace("{", "").replace("}", "")
    word = between.join(f"{{{name}}}" for name in names)
    assert placeholders_in(word) == set(names)
    assert filled(word, VALUES) == between.join(VALUES[name] for name in names)
