"""An error is one line, whose place is put in front of it; a name is guessed only where it is near."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.errors import InputError, LocatedError, did_you_mean, nearest_name, one_line, prefixed


@given(st.text(max_size=30))
def test_one_line_is_one_printable_line(text: str) -> None:
    assert one_line(text).isprintable()
    if text.isprintable():
        assert one_line(text) == text


def test_what_cannot_be_printed_is_escaped_and_the_rest_stays() -> None:
    assert one_line("zürich\n über\x07 'all'") == "zürich über\\x07 'all'"


FIELDS = ("engine", "repeats", "seed", "sweep", "topology", "training", "variants", "wan", "rate", "iterations")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("repeat", "repeats"),
        ("raet", "rate"),
        ("sed", "seed"),
        ("wann", "wan"),
        ("Training", "training"),
        ("topologie", "topology"),
        ("varients", "variants"),
        ("iteratoin", "iterations"),
    ],
)
def test_a_misspelt_name_is_recognized(written: str, meant: str) -> None:
    """A letter too many, one missing, another one, or two that changed places."""
    assert nearest_name(written, FIELDS) == meant


def test_another_tools_word_is_recognized_where_ours_is_known() -> None:
    link = ("latency", "rate", "loss")
    assert [nearest_name(word, link) for word in ("delay", "Bandwidth", "rtt")] == ["latency", "rate", "latency"]
    assert nearest_name("bandwidth", ["hosts"]) is None
    assert did_you_mean("rtt", link, "no") == "did you mean 'latency'? It is one way: half of an RTT"
    assert did_you_mean("delay", link, "no") == "did you mean 'latency'?"


@pytest.mark.parametrize("written", ["events", "retries", "lan2", "s", "", "train", "x" * 10_000_000])
def test_another_word_is_no_misspelt_name(written: str) -> None:
    """A wrong guess would lead the reader away from the mistake."""
    assert nearest_name(written, FIELDS) is None


def test_names_of_one_form_are_not_taken_for_each_other() -> None:
    """Half of their letters agree, and they are the names of two places."""
    assert nearest_name("east", ["west", "north"]) is None


def test_the_nearest_of_several_is_named() -> None:
    """Not the first that is near."""
    assert nearest_name("gpipes", ["gpipe-x", "gpipe"]) == "gpipe"


def test_the_remedy_is_a_guess_or_what_the_caller_offers() -> None:
    """The caller lists what there is."""
    assert did_you_mean("wann", FIELDS, "known: all") == "did you mean 'wan'?"
    assert did_you_mean("events", FIELDS, "known: all") == "known: all"


def test_a_prefix_goes_in_front_of_every_mistake() -> None:
    with pytest.raises(InputError) as caught, prefixed("exp.yaml: "):
        raise InputError("seed: bad", "repeats: bad")
    assert caught.value.mistakes == ("exp.yaml: seed: bad", "exp.yaml: repeats: bad")
    assert str(caught.value) == "exp.yaml: seed: bad; exp.yaml: repeats: bad"


def test_a_prefix_goes_in_front_of_an_error_and_an_outer_one_before_it() -> None:
    cause = OSError("the cause")
    with pytest.raises(InputError) as caught, prefixed("exp.yaml: "), prefixed("variants.0."):
        raise InputError("schedule: unknown") from cause
    assert str(caught.value) == "exp.yaml: variants.0.schedule: unknown"
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize("error", [LocatedError("trace.csv:7: bad"), ValueError("bad")])
def test_other_errors_get_no_prefix(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, prefixed("exp.yaml: "):
        raise error
    assert caught.value is error
    assert "exp.yaml" not in str(error)


def test_a_mistake_is_one_line_whatever_text_it_quotes() -> None:
    refusal = InputError("a.yaml: name: two\nlines: give one", "b\x07.yaml: no such file")
    assert refusal.mistakes == ("a.yaml: name: two lines: give one", "b\\x07.yaml: no such file")
    assert str(refusal) == "; ".join(refusal.mistakes)
