from typing import Any

from wanbed.results.reading.links import changing_links, changing_links_at, changing_links_text


def manifest(*links: dict[str, Any]) -> dict[str, Any]:
    return {"sweep_points": [{"index": 0, "wan": list(links)}]}


COURSE = {"source": "drift.csv", "synthetic": False, "period_ns": None, "changes": 3, "sha256": "ab"}
DRAWN = {**COURSE, "source": "generated: outages", "synthetic": True, "changes": 1}


def test_links_that_change_are_named_with_what_changes_them() -> None:
    found = manifest({"from": "a", "to": "b", "course": COURSE}, {"from": "b", "to": "a", "course": DRAWN})
    assert [each.synthetic for each in changing_links(found)] == [False, True]
    assert changing_links_text(found) == (
        "Links change while training runs: a to b (3 changes, drift.csv) and b to a (1 change, generated: outages, "
        "synthetic). What is synthetic was drawn, not measured."
    )


def test_links_that_hold_are_not_mentioned() -> None:
    assert changing_links_text(manifest({"between": ["a", "b"], "latency_ns": 5})) is None


def test_a_sweep_point_has_its_own_changes() -> None:
    changing, still = {"from": "a", "to": "b", "course": COURSE}, {"from": "a", "to": "b"}
    points = {"sweep_points": [{"index": 0, "wan": [still]}, {"index": 1, "wan": [changing]}]}
    assert [len(changing_links_at(points, point)) for point in (0, 1, 2)] == [0, 1, 0]
    assert len(changing_links(points)) == 1
