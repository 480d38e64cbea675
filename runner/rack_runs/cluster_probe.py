"""Ask a Ray cluster who it lets in, as a program: Ray fixes its authentication when a process uses it first.

It prints one JSON document: whether the cluster refuses this process, the versions of Ray and Python that the cluster
runs, and whether this machine is part of a cluster.
"""

import json
import os
import sys
from typing import Any

_PATIENCE_S = 5


def ask(address: str) -> dict[str, Any]:
    """Ask the cluster's head, with the authentication that this process's environment has."""
    os.environ["RAY_py_gcs_connect_timeout_s"] = str(_PATIENCE_S)  # noqa: SIM112 - as Ray spells it
    from ray._private.services import find_node_ids  # noqa: PLC0415
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # noqa: PLC0415
    from ray.exceptions import AuthenticationError  # noqa: PLC0415

    try:
        metadata = GcsClient(address=address).internal_kv_get(
            b"CLUSTER_METADATA", namespace=b"cluster", timeout=_PATIENCE_S
        )
    except AuthenticationError:
        return {"refused": True}
    versions = json.loads(metadata or b"{}")
    return {
        "refused": False,
        "ray": versions.get("ray_version"),
        "python": versions.get("python_version"),
        "node_here": bool(find_node_ids()),
    }


if __name__ == "__main__":
    print(json.dumps(ask(sys.argv[1])))
