"""Give each job hosts of its own."""

from collections.abc import Sequence
from dataclasses import replace

from wanbed.ground.nearest_name import did_you_mean
from wanbed.ground.strict_model import InputError
from wanbed.runner.experiment.job_spec import JobSpec
from wanbed.testbed.network.topology import Topology


def job_topologies(jobs: Sequence[JobSpec], topology: Topology) -> tuple[Topology, ...]:
    """Return for each job the network with the job's hosts alone, in every datacenter the first that are free.

    Hosts that do not train belong to no job. Raise InputError for an unknown datacenter and for too many hosts.
    """
    taken = {datacenter.name: 0 for datacenter in topology.datacenters}
    found = []
    for position, job in enumerate(jobs):
        for name in job.hosts:
            if name not in taken:
                remedy = did_you_mean(name, list(taken), f"there are {', '.join(taken)}")
                raise InputError(f"jobs.{position}.hosts: no datacenter {name!r}, {remedy}")
        datacenters = []
        for datacenter in topology.datacenters:
            first, count = taken[datacenter.name], job.hosts.get(datacenter.name, 0)
            training = [host for host in datacenter.hosts if host.trains]
            if first + count > len(training):
                raise InputError(
                    f"jobs.{position}.hosts.{datacenter.name}: {count} hosts, where {len(training) - first} of "
                    f"{len(training)} are left: add hosts to the datacenter, or give fewer"
                )
            taken[datacenter.name] = first + count
            datacenters.append(replace(datacenter, hosts=tuple(training[first : first + count])))
        found.append(replace(topology, datacenters=tuple(datacenters)))
    return tuple(found)
