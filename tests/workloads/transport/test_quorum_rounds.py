"""Which parts make which sum of a star."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.transport.quorum_rounds import QuorumRounds, StarPart, StarSum


def given_in_order(rounds: QuorumRounds, *parts: tuple[int, int]) -> list[StarSum]:
    sums = (rounds.give(StarPart(*part)) for part in parts)
    return [each for each in sums if each is not None]


def test_a_sum_is_complete_with_the_quorum() -> None:
    rounds = QuorumRounds(range(3), 2, 4)
    assert given_in_order(rounds, (2, 0), (0, 0)) == [StarSum(0, (StarPart(2, 0), StarPart(0, 0)))]


def test_a_late_part_counts_in_the_next_sum_and_not_for_its_quorum() -> None:
    rounds = QuorumRounds(range(3), 2, 4)
    sums = given_in_order(rounds, (0, 0), (1, 0), (2, 0), (0, 1), (2, 1))
    assert [each.parts for each in sums] == [((0, 0), (1, 0)), ((2, 0), (0, 1), (2, 1))]
    assert [each.late for each in sums] == [0, 1]


def test_a_late_part_counts_in_the_next_sum_of_its_fragment() -> None:
    rounds = QuorumRounds(range(2), 1, 6, fragments=2)
    sums = given_in_order(rounds, (0, 0), (1, 0), (0, 1), (0, 2))
    assert [each.parts for each in sums] == [((0, 0),), ((0, 1),), ((1, 0), (0, 2))]


def test_a_part_after_the_last_sum_counts_in_none() -> None:
    rounds = QuorumRounds(range(2), 1, 1)
    assert len(given_in_order(rounds, (0, 0), (1, 0))) == 1
    assert rounds.dropped == [StarPart(1, 0)]


def test_a_replica_that_is_lost_is_not_waited_for() -> None:
    rounds = QuorumRounds(range(3), 3, 2)
    assert given_in_order(rounds, (0, 0), (1, 0)) == []
    assert rounds.lose(2) == StarSum(0, (StarPart(0, 0), StarPart(1, 0)))
    assert rounds.left == {0, 1}
    assert given_in_order(rounds, (0, 1), (1, 1)) == [StarSum(1, (StarPart(0, 1), StarPart(1, 1)))]


def test_the_part_of_a_replica_that_is_lost_afterwards_counts() -> None:
    rounds = QuorumRounds(range(3), 3, 1)
    assert given_in_order(rounds, (2, 0), (0, 0)) == []
    assert rounds.lose(2) is None
    assert given_in_order(rounds, (1, 0)) == [StarSum(0, (StarPart(2, 0), StarPart(0, 0), StarPart(1, 0)))]


def test_a_replica_that_comes_back_counts_again_and_gives_its_open_parts_anew() -> None:
    rounds = QuorumRounds(range(3), 3, 2)
    assert given_in_order(rounds, (2, 0), (0, 0)) == []
    assert rounds.lose(2) is None
    assert rounds.rejoin(2) == (StarPart(2, 0),)
    assert given_in_order(rounds, (1, 0)) == []
    assert given_in_order(rounds, (2, 0)) == [StarSum(0, (StarPart(0, 0), StarPart(1, 0), StarPart(2, 0)))]


@pytest.mark.parametrize("quorum", [0, 4])
def test_a_quorum_of_more_replicas_than_there_are_is_refused(quorum: int) -> None:
    with pytest.raises(ValueError, match=f"quorum: {quorum} is not 1 to 3"):
        QuorumRounds(range(3), quorum, 1)


@pytest.mark.parametrize("number", [-1, 1, 2])
def test_a_part_of_a_sum_that_is_not_open_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="and 0 is open"):
        QuorumRounds(range(3), 2, 2).give(StarPart(0, number))


@given(st.data())
def test_every_replica_gets_every_sum_and_no_part_counts_twice(data: st.DataObject) -> None:
    replicas = data.draw(st.integers(1, 5))
    count, fragments = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
    rounds = QuorumRounds(range(replicas), data.draw(st.integers(1, replicas)), count, fragments)
    given_so_far, left = dict.fromkeys(range(replicas), 0), set(range(replicas))
    sums: list[StarSum] = []
    # Each replica gives its next part as soon as it has the sum before; which one acts next, chance decides.
    while able := sorted(each for each in left if given_so_far[each] < count and given_so_far[each] <= len(sums)):
        replica = data.draw(st.sampled_from(able))
        if len(left) > 1 and data.draw(st.integers(0, 9)) == 0:
            left.discard(replica)
            done = rounds.lose(replica)
        else:
            done = rounds.give(StarPart(replica, given_so_far[replica]))
            given_so_far[replica] += 1
        sums += [] if done is None else [done]
    assert [each.number for each in sums] == list(range(count))
    counted = [part for each in sums for part in each.parts]
    assert len(set(counted)) == len(counted)
    assert {*counted, *rounds.dropped} == {
        StarPart(replica, number) for replica, parts in given_so_far.items() for number in range(parts)
    }
    assert all(part.number % fragments == each.number % fragments for each in sums for part in each.parts)
