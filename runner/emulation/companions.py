"""List the companions of a training on hosts. The first one starts first and ends last."""

from wanbed.runner.companions.background.on_hosts import BackgroundTraffic
from wanbed.runner.companions.link_changes.on_hosts import LinkChanges
from wanbed.runner.companions.losses.on_hosts import Losses
from wanbed.runner.companions.prefill.on_hosts import PrefillService
from wanbed.runner.companions.telemetry.on_hosts.telemetry import Telemetry
from wanbed.runner.emulation.companion import Companion

COMPANIONS: tuple[type[Companion], ...] = (Telemetry, PrefillService, LinkChanges, BackgroundTraffic, Losses)
