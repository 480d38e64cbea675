from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ground.strict_model import InputError
from tests.support.runner.prefill_documents import document, point, with_prefill
from workloads.config_file import read_config, write_config
from workloads.prefill.request_source import RequestSource
from workloads.prefill.service_config import ServiceConfig

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.0,4808,10\n{}2023-11-16 18:17:07.0,300,20\n"


def service(directory: Path = Path(), **changes: Any) -> ServiceConfig:
    found = point(directory, **changes).variants[0].service
    assert found is not None
    return found


def variant(**fields: Any) -> dict[str, Any]:
    return {"variants": [{"name": "any", "schedule": "1f1b", **fields}]}


def test_groups_have_replicas_of_the_same_stage() -> None:
    of = point()
    places = of.variants[0].placement.places
    assert of.variants[0].service is not None
    for datacenter in of.variants[0].service.datacenters:
        for group in datacenter.groups:
            assert len({places[gpu].stage for gpu in group.gpus}) == 1
            assert {places[gpu].datacenter for gpu in group.gpus} == {datacenter.name}


def test_every_training_gpu_is_in_one_group() -> None:
    gpus = [gpu for datacenter in service().datacenters for group in datacenter.groups for gpu in group.gpus]
    assert sorted(gpus) == list(range(8))


def test_a_policy_of_none_without_a_pool_is_no_service() -> None:
    assert point(**variant(prefill="none")).variants[0].service is None
    assert point(prefill=None).variants[0].service is None


def test_the_pool_is_on_hosts_that_serve_and_numbered_after_the_ranks() -> None:
    found = service(**variant(prefill="none", pool=4))
    assert [[gpu.number for gpu in each.gpus] for each in found.datacenters] == [[8, 9], [10, 11]]
    assert [gpu.host for gpu in found.datacenters[0].gpus] == ["east-serving-0", "east-serving-1"]
    assert all(group.pooled for each in found.datacenters for group in each.groups)


def test_a_pool_of_one_group_leaves_the_other_datacenter_out() -> None:
    found = service(**variant(prefill="none", pool=2))
    assert [each.name for each in found.datacenters] == ["east"]
    assert {datacenter.name for datacenter, _ in islice(found.arrivals(), 10)} == {"east"}


def test_a_pool_beside_planned_prefill_has_groups_after_the_others() -> None:
    found = service(**variant(pool=2))
    assert [[group.pooled for group in each.groups] for each in found.datacenters] == [
        [False, False, True],
        [False] * 2,
    ]
    assert [each.weight for each in found.datacenters] == [3, 2]


def test_smaller_transfers_are_planned_on_a_faster_path() -> None:
    whole, small = (
        service(**with_prefill(kv=None, activation=None)),
        service(**with_prefill(kv="2KiB", activation="128B")),
    )
    assert whole.kv_token_bytes == 64 * small.kv_token_bytes == 128 * 1024
    assert whole.activation_token_bytes == 64 * small.activation_token_bytes
    assert small.settings.transfer_rate_bps == pytest.approx(64 * whole.settings.transfer_rate_bps)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            with_prefill(depth=8),
            "exp.yaml: prefill.depth: 8 GPUs a request, where east trains on 4: give a smaller depth",
        ),
        (with_prefill(training_memory="79GiB"), "exp.yaml: prefill.memory: "),
        (
            with_prefill(profile="a10"),
            "exp.yaml: prefill.profile: there is none of the name 'a10', did you mean 'a100'?",
        ),
        (with_prefill(model="llama-tiny"), "exp.yaml: prefill.profile: prefill profile 'Prefill on NVIDIA A100"),
        (with_prefill(trace="poison"), "exp.yaml: prefill.trace: poison is no file: did you mean 'poisson'?"),
        (
            variant(pool=3),
            "exp.yaml: variants.0.pool: 3 GPUs make no whole groups of 2: give a multiple of prefill.depth",
        ),
        (
            variant(pool=6),
            "exp.yaml: variants.0.pool: 6 GPUs in groups of 2, where the hosts that serve have room for 2",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_field(changes: dict[str, Any], text: str) -> None:
    changes = {key: dict(value) if key == "prefill" else value for key, value in changes.items()}
    if "trace" in changes.get("prefill", {}):
        del changes["prefill"]["prompt"]
    with pytest.raises(InputError) as caught:
        point(**changes)
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)


def test_a_datacenter_without_a_host_that_decodes_is_refused() -> None:
    topology = document()["topology"]
    datacenters = [topology["datacenters"][0], {"name": "west", "hosts": 4}]
    with pytest.raises(InputError, match=r"topology\.datacenters\.1\.serving_hosts: prefill in west needs a host"):
        point(topology={**topology, "datacenters": datacenters})


def of_file(**more: Any) -> dict[str, Any]:
    return {"prefill": {"trace": "trace.csv", "slo": "2s", "kv": "2KiB", "activation": "128B", **more}}


def test_a_trace_keeps_its_rate_or_is_scaled_to_the_one_given(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(AZURE.format(""))
    own, scaled = service(tmp_path, **of_file()), service(tmp_path, **of_file(rate="1/s"))
    assert own.source.rate_per_s == 0.25
    assert [request.arrival_ns for request in own.source.requests()] == [0, 4 * 10**9]
    assert [request.arrival_ns for request in scaled.source.requests()] == [0, 10**9]
    assert [request.prompt_tokens for _, request in scaled.arrivals()] == [4808, 300]


def test_the_columns_of_a_trace_may_have_names_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("sent,in,out\n1.5,300,8\n2,400,9\n")
    columns = {"arrival": "sent", "prompt": "in", "output": "out", "unit": "s"}
    source = service(tmp_path, **of_file(columns=columns)).source
    write_config(source, tmp_path / "config.json")
    for read in (source, read_config(RequestSource, tmp_path / "config.json")):
        assert [(request.arrival_ns, request.prompt_tokens) for request in read.requests()] == [
            (0, 300),
            (5 * 10**8, 400),
        ]


def test_a_bad_line_of_a_trace_is_reported_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(AZURE.format("nonsense\n"))
    with pytest.raises(InputError, match=r"trace\.csv:3: 1 columns, 3 are wanted") as caught:
        point(tmp_path, **of_file())
    assert str(caught.value).startswith(f"{tmp_path}/trace.csv:3: ")
    skipping = service(tmp_path, **of_file(skip_bad_lines=True))
    assert skipping.source.skipped_lines == 1
    assert len(list(skipping.source.requests())) == 2


def test_another_content_of_the_trace_is_another_experiment(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(AZURE.format(""))
    before = point(tmp_path, **of_file()).resolved()
    path.write_text(AZURE.format("").replace("300", "3000"))
    assert point(tmp_path, **of_file()).resolved() != before
