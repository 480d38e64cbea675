from collections import Counter

from wanbed.runner.validation.random.dice import Dice

NUMBERS = [871, 989, 807, 798, 566]
FIRST = NUMBERS[0]


def test_a_text_gives_the_same_on_every_machine() -> None:
    assert [Dice("text").whole(0, 999) for _ in range(2)] == [FIRST, FIRST]
    dice = Dice("text")
    assert [dice.whole(0, 999) for _ in range(5)] == NUMBERS


def test_another_text_gives_something_else() -> None:
    assert [Dice("other").whole(0, 999)] != [FIRST]


def test_choices_come_as_often_as_they_should() -> None:
    dice = Dice("often")
    found = Counter(dice.weighted((("often", 3), ("seldom", 1))) for _ in range(4000))
    assert 2800 < found["often"] < 3200
    assert 1200 < sum(dice.chance(0.35) for _ in range(4000)) < 1600
    assert {dice.one("abc") for _ in range(100)} == set("abc")
    assert {dice.whole(2, 4) for _ in range(100)} == {2, 3, 4}


def test_a_shuffle_keeps_every_value() -> None:
    dice = Dice("cards")
    shuffles = [tuple(dice.shuffled((1, 1, 2, 3))) for _ in range(200)]
    assert all(sorted(shuffle) == [1, 1, 2, 3] for shuffle in shuffles)
    assert len(set(shuffles)) == 12
