"""A Ray cluster that the tests of a module share: import the fixture where it is used."""

from collections.abc import Iterator

import pytest

from tests.support.ray.ray_cluster import RayCluster, RayNode, ray_cluster


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[RayCluster]:
    """Yield a cluster of a node in each of two datacenters, ``east`` and ``west``."""
    nodes = (RayNode(name, {"wanbed.datacenter": name}) for name in ("east", "west"))
    with ray_cluster(*nodes) as cluster:
        yield cluster
