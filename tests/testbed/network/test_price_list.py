from typing import Any

import pytest

from tests.support.present import present
from tests.support.refused import refused
from wanbed.ground.strict_model import parse_model
from wanbed.testbed.network.price_list import PriceList, price_list
from wanbed.testbed.network.topology_spec import TopologySpec


def spec(*datacenters: dict[str, Any], links: list[dict[str, Any]] | None = None) -> TopologySpec:
    named = [{"name": name, "hosts": 1, **each} for name, each in zip("abc", datacenters, strict=False)]
    document = {"datacenters": named, "wan": {"latency": "10ms"}, "links": links or []}
    return parse_model(TopologySpec, document, "topology.yaml")


def prices(*datacenters: dict[str, Any], links: list[dict[str, Any]] | None = None) -> PriceList:
    return present(price_list(spec(*datacenters, links=links)))


def test_without_prices_there_is_no_list() -> None:
    assert price_list(spec({}, {})) is None


def test_gpus_cost_by_the_hour_and_bytes_by_the_link() -> None:
    found = prices(
        {"gpu_price": "2.50USD/h", "egress_price": "0.02USD/GB"}, {"gpu_price": "1USD/h", "egress_price": "80USD/TB"}
    )
    assert found.gpus_usd_per_h({"a": 4, "b": 3}) == 13.0
    assert found.egress_usd({("a", "b"): 5e9, ("b", "a"): 1e9}) == pytest.approx(5 * 0.02 + 0.08)


def test_a_gibibyte_is_more_than_a_gigabyte() -> None:
    found = prices({"egress_price": "1.073741824USD/GiB"}, {"egress_price": "0USD/GB"})
    assert found.of_gb["a", "b"] == 1.0


def test_what_has_no_price_is_free() -> None:
    of_gpus = prices({"gpu_price": "2USD/h"}, {"gpu_price": "1USD/h"})
    assert of_gpus.egress_usd({("a", "b"): 1e12}) == 0
    of_bytes = prices({"egress_price": "1USD/GB"}, {"egress_price": "1USD/GB"})
    assert of_bytes.gpus_usd_per_h({"a": 8}) == 0
    assert of_gpus.any_above_zero
    assert of_bytes.any_above_zero
    assert not prices({"gpu_price": "0USD/h"}, {"gpu_price": "0USD/h"}).any_above_zero


def test_a_link_has_its_own_price_and_a_direction_stands_above_both() -> None:
    found = prices(
        *({"egress_price": "1USD/GB"},) * 3,
        links=[
            {"from": "b", "to": "a", "egress_price": "0.25USD/GB"},
            {"between": ["a", "b"], "egress_price": "0.5USD/GB"},
            {"between": ["b", "c"], "latency": "1ms"},
        ],
    )
    assert found.of_gb == {
        ("a", "b"): 0.5,
        ("b", "a"): 0.25,
        ("a", "c"): 1.0,
        ("c", "a"): 1.0,
        ("b", "c"): 1.0,
        ("c", "b"): 1.0,
    }


@pytest.mark.parametrize(
    ("datacenters", "links", "text"),
    [
        (
            ({"gpu_price": "2USD/h"}, {}),
            [],
            "topology.datacenters.1.gpu_price: a has one: give every datacenter one, 0USD/h where GPUs cost nothing",
        ),
        (
            ({}, {"egress_price": "0.1USD/GB"}),
            [],
            "topology.datacenters.0.egress_price: b has one: give every datacenter one, 0USD/GB where nothing is paid "
            "for what is sent",
        ),
        (
            ({"gpu_price": "2USD/h"}, {"gpu_price": "2USD/h"}),
            [{"between": ["a", "b"], "egress_price": "0.5USD/GB"}],
            "topology.links.0.egress_price: it is in place of the datacenters' own, and they have none: give each an "
            "egress_price",
        ),
    ],
)
def test_prices_that_only_some_have_are_refused(datacenters: Any, links: Any, text: str) -> None:
    assert refused(lambda: price_list(spec(*datacenters, links=links))) == text


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("gpu_price", 2.1, "2.1 has no unit: write a price of a GPU like 2.10USD/h"),
        ("gpu_price", "2.1EUR/h", "'2.1EUR/h' has the unit 'EUR/h', not one of a price of a GPU (USD/h)"),
        ("gpu_price", "-1USD/h", "'-1USD/h' is negative"),
        ("gpu_price", "2000000USD/h", "'2000000USD/h' is above 1000000USD/h: give less"),
        ("egress_price", "0.05USD/h", "not one of a price of sent bytes (USD/GB, USD/GiB, USD/TB)"),
    ],
)
def test_a_bad_price_is_one_line(field: str, value: Any, text: str) -> None:
    line = refused(lambda: spec({field: value}, {field: "1USD/GB"}))
    assert f"datacenters.0.{field}: " in line
    assert text in line


def test_a_price_is_written_as_it_is_read() -> None:
    written = spec({"gpu_price": "2.10USD/h", "egress_price": "0.05USD/GiB"}, {}).model_dump(mode="json")
    first, second = written["datacenters"]
    assert first["gpu_price"] == "2.1USD/h"
    assert (
        spec(first, {}).datacenters[0] == spec({"gpu_price": "2.10USD/h", "egress_price": "0.05USD/GiB"}).datacenters[0]
    )
    assert "gpu_price" not in second
