import pytest

from wanbed.runner.planner.candidate import Candidate, Price, Priced


def priced(tokens_per_s: float, runs: tuple[tuple[str, int], ...], cells: int = 1) -> Priced:
    return Priced(Candidate(cells, 1, runs), Price(1.0, tokens_per_s, 0.5, 0))


def test_a_candidate_names_the_datacenter_of_each_stage() -> None:
    candidate = Candidate(3, 2, (("west", 2), ("east", 1)))
    assert candidate.placement == ("west", "west", "east")
    assert (candidate.pipelines, candidate.stages, candidate.datacenters) == (6, 3, ("west", "east"))


@pytest.mark.parametrize(
    ("cells", "size", "runs"),
    [
        (0, 1, (("a", 1),)),
        (1, 0, (("a", 1),)),
        (1, 1, (("a", 0),)),
        (1, 1, (("a", 1), ("b", 1), ("a", 1))),
    ],
)
def test_what_is_no_candidate_is_refused(cells: int, size: int, runs: tuple[tuple[str, int], ...]) -> None:
    with pytest.raises(ValueError, match=r"below 1|occurs twice"):
        Candidate(cells, size, runs)


def test_ties_go_to_fewer_datacenters_then_to_fewer_gpus() -> None:
    fast = priced(2.0, (("a", 1), ("b", 1)))
    together = priced(1.0, (("a", 2),))
    apart = priced(1.0, (("a", 1), ("b", 1)))
    many = priced(1.0, (("a", 2),), cells=2)
    assert sorted([apart, many, together, fast], key=lambda entry: entry.rank) == [fast, together, many, apart]
