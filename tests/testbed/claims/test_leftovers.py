import pytest

from wanbed.testbed.claims import leftovers as module
from wanbed.testbed.claims.cleaning import Leftover
from wanbed.testbed.claims.leftovers import leftovers_text

LEFT = Leftover("wb-1", "/home/me/exp.yaml", processes=12, namespaces=3)


def text_of(left: list[Leftover], monkeypatch: pytest.MonkeyPatch, *, inside: bool = False) -> str | None:
    monkeypatch.setattr(module, "in_user_namespace", lambda: inside)
    monkeypatch.setattr(module, "leftovers", lambda: left)
    return leftovers_text()


def test_leftovers_are_one_line_with_the_command_that_removes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert text_of([LEFT], monkeypatch) == (
        "killed runs left wb-1 of /home/me/exp.yaml (12 processes, 3 network namespaces): "
        "`wanbed clean` removes what they left"
    )


def test_of_many_leftovers_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of([Leftover(f"wb-{number}", "x", 0, 0) for number in range(9)], monkeypatch)
    assert text is not None
    assert text.startswith("killed runs left wb-0 of x (its record), wb-1 of x (its record), ")
    assert ", and 6 more: `wanbed clean` " in text


@pytest.mark.parametrize(("left", "inside"), [([], False), ([LEFT], True)])
def test_nothing_is_reported_where_nothing_is_left_or_can_be_seen(
    left: list[Leftover], inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert text_of(left, monkeypatch, inside=inside) is None
