"""``wanbed shell``: open Mininet's prompt on an experiment's network."""

import sys

from wanbed.ground.errors import prefixed
from wanbed.runner.cli.arguments import ExperimentFile, Overrides, SubstrateName
from wanbed.runner.cli.exit_status import one_line_errors


def shell(file: ExperimentFile, overrides: Overrides = None, substrate: SubstrateName = "auto") -> None:
    """Bring up the file's network and open Mininet's prompt on it, for commands like `east-0 ping -c 3 west-0`.

    `exit` ends both. `wanbed exec` from another terminal joins this network while it is up. Links that change begin to
    when the prompt appears.
    """
    with one_line_errors():
        from wanbed.runner.cli.user_namespace import enter_user_namespace_for, report_leftovers
        from wanbed.runner.emulation.gpu_provisioning import provision_gpus
        from wanbed.runner.emulation.network_choice import check_namespaces, first_point, network_up
        from wanbed.runner.experiment.experiment_document import ExperimentDocument

        check_namespaces("shell", substrate)
    # A machine that only simulates has no Mininet.
    from mininet.cli import CLI
    from mininet.log import lg

    from wanbed.testbed.hosts.emulated_hosts import EmulatedNetwork

    class Prompt(CLI):  # type: ignore[misc]
        """Mininet's prompt, which also accepts host names with dashes and dots."""

        identchars = CLI.identchars + "-."

    with one_line_errors():
        document = ExperimentDocument.read(file, overrides or [])
        enter_user_namespace_for(document)
        point = first_point(document)
        with prefixed(f"{file}: "):
            gpus = provision_gpus(point)
        report_leftovers()
        with network_up(point.topology, substrate, file, gpus=gpus, awake=False) as testbed:
            assert isinstance(testbed.network, EmulatedNetwork), "only Mininet's hosts have its prompt"
            hosts = ", ".join(node.name for node in testbed.network.hosts)
            print(f"wanbed: up on the {testbed.facts.name} substrate: {hosts}", file=sys.stderr)
            # Mininet prints the output of hosts through its log, which goes to standard error by default.
            for handler in lg.handlers:
                handler.setStream(sys.stdout)
            if testbed.changing is not None:
                testbed.changing.begin()
            Prompt(testbed.network)
