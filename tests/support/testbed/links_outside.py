import os

from tests.support.ray.machine_namespaces import LINK


def links_outside() -> set[str]:
    """Return the machine's own links, without those of clusters that other tests have meanwhile."""
    return {name for name in os.listdir("/sys/class/net") if not name.startswith(LINK)}
