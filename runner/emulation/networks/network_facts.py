"""Read what carries the network of a sweep point, as the kernels report it, and write it to the manifest."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from wanbed.results.reading.validity import MODELLED
from wanbed.results.records.run_store import RunStore
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.runs.manifest import without_repetition
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.rights.hosts_allowed import in_user_namespace
from wanbed.testbed.running_testbed import RunningTestbed


def read_network(testbed: RunningTestbed) -> dict[str, Any]:
    """Return what the kernels report of the network while no trial runs. Its hosts then have the default TCP."""
    testbed.use_tcp(TcpSettings())
    return {
        "wan_delay_trim_ns": testbed.facts.trim_ns,
        "qdiscs": testbed.read_qdiscs(),
        "sysctls": without_repetition(testbed.read_sysctls()),
        "offloads": without_repetition(testbed.read_offloads()),
    }


def remember_network(store: RunStore, point: SweepPoint, testbed: RunningTestbed, reported: Mapping[str, Any]) -> None:
    """Write to the manifest what carries the network of a sweep point, and what ``read_network`` returned of it."""
    facts, modelled = testbed.facts, testbed.stacks.modelled
    guest = {} if facts.guest is None else {"guest": asdict(facts.guest)}
    tcp = {"tcp": MODELLED} if modelled else {}
    machine = {"kernel": facts.kernel, "prompt_wakeups": facts.prompt_wakeups}
    substrate = {"name": facts.name, "reason": testbed.reason, **machine, **guest, **tcp}
    rights = {"user_namespace": in_user_namespace()}
    machines = testbed.manifest_facts()
    of_point = by_point(store, point, {**reported, **machines.of_point})
    store.update_manifest({"substrate": substrate, "rights": rights, **machines.of_run, **of_point})


def by_point(store: RunStore, point: SweepPoint, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest's facts of every sweep point, with those of this one."""
    return {key: {**store.manifest.get(key, {}), str(point.index): fact} for key, fact in facts.items()}
