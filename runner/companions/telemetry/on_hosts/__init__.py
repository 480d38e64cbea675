"""Sample links, connections, GPUs and the machine while a trial runs."""

from wanbed.runner.companions.telemetry.on_hosts.telemetry import Telemetry

COMPANION = Telemetry
