"""What fails is one thing at a time; what does not belong there is refused in one line."""

from typing import Any

import pytest

from tests.support.runner.taken_values import taken, takes_from_to
from wanbed.ground.errors import InputError
from wanbed.ground.strict_model import parse_model
from wanbed.runner.companions.faults.spec import FaultSpec
from wanbed.runner.experiment.experiment_spec import ExperimentSpec

TOPOLOGY = {"datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}], "wan": {"latency": "1ms"}}


@pytest.mark.parametrize(
    ("written", "refusal"),
    [
        ({"at": "1s"}, "give one of host, rank and gateway, like {host: east-1, at: 20s}"),
        ({"host": "east-0", "rank": 1, "at": "1s"}, "give one of host, rank and gateway, like {host: east-1, at: 20s}"),
        (
            {"link": ["east", "west"], "at": "5s", "for": "3s"},
            "a link's failure is a part of its conditions over time: leave link out here, and give the link events, "
            "like {at: 5s, for: 3s, down: true}",
        ),
        ({"gateway": "west", "at": "5s", "for": "3s"}, "for: a gateway that fails does not come back: leave for out"),
        ({"host": "east-0"}, "at: this field is required"),
        ({"rank": -1, "at": "1s"}, "rank: -1 is not a whole number from 0 to 1048575"),
        ({"gateway": "west", "at": 5}, "at: 5 has no unit"),
    ],
)
def test_a_fault_that_is_none_is_refused(written: dict[str, Any], refusal: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_model(FaultSpec, written, "exp.yaml")
    assert refusal in str(refused.value)


def test_an_experiment_without_failures_has_the_document_that_it_always_had() -> None:
    document = parse_model(ExperimentSpec, {"topology": TOPOLOGY}, "exp.yaml").document()
    assert not {"fail", "recovery", "checkpoint_every"} & document.keys()


def test_the_document_of_an_experiment_with_failures_is_read_as_the_same() -> None:
    written = {
        "topology": TOPOLOGY,
        "fail": [{"host": "east-0", "at": "20s"}, {"rank": 1, "at": "0ms"}, {"gateway": "west", "at": "1s"}],
        "recovery": "restart",
        "checkpoint_every": 2,
    }
    spec = parse_model(ExperimentSpec, written, "exp.yaml")
    assert spec.document()["fail"][0] == {"host": "east-0", "at": "20s"}
    assert parse_model(ExperimentSpec, spec.document(), "again") == spec


def test_a_fault_that_ends_is_written_as_it_was_read() -> None:
    fail = [{"rank": 1, "at": "20s", "for": "15s"}]
    spec = parse_model(ExperimentSpec, {"topology": TOPOLOGY, "fail": fail}, "exp.yaml")
    assert spec.document()["fail"] == fail
    assert parse_model(ExperimentSpec, spec.document(), "again") == spec


def test_a_fault_is_of_the_kind_that_it_names_and_ranks_count_to_one_less_than_there_can_be() -> None:
    for kind, value in (("host", "east-0"), ("rank", 0), ("gateway", "east")):
        assert parse_model(FaultSpec, {kind: value, "at": "0s"}, "exp.yaml").kind == kind
    assert takes_from_to(FaultSpec, "rank", 0, 1024 * 1024 - 1, at="1s")
    assert taken(FaultSpec, "for", "15s", None, rank=0, at="1s") == [15 * 10**9, None]
