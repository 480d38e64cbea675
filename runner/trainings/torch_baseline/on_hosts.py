"""Make the configuration of each rank of a variant that is a baseline of torch's."""

from wanbed.results.records.span_log import RankPlace
from wanbed.runner.companions.losses.resolution import held_out, learning_seed
from wanbed.runner.emulation.rank_configs import FIRST_PORT, SharedConfig
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.stage_costs import model_config
from wanbed.workloads.baselines.baseline_config import DEFAULT_SILENCE_NS, BaselineConfig, BaselineShape, GlooConfig
from wanbed.workloads.compute.device_settings import DeviceSettings
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.kept_files import KeptFilesConfig

INTERFACE = "eth0"


def configure_baseline(point: SweepPoint, variant: PipelineVariant, setting: SharedConfig) -> list[BaselineConfig]:
    """Return one configuration for each rank, in order: ``pipeline x stages + stage``. Rank 0 serves the store."""
    spec, placement = point.spec, variant.placement
    store = setting.addresses.address(placement.places[0].host)
    configs = []
    for rank, place in enumerate(placement.places):
        gradients = setting.gradients(rank)
        configs.append(
            BaselineConfig(
                RankPlace(rank, place.host.name, place.datacenter, place.gpu, place.pipeline, place.stage),
                BaselineShape(variant.schedule, placement.stages, variant.pipelines, variant.microbatches),
                iterations=spec.training.iterations,
                learning=LearningConfig(
                    variant.cut(model_config(spec, "torch")),
                    spec.training.learning_rate,
                    spec.training.precision,
                    learning_seed(spec, variant.repeat),
                    point.text,
                    held_out(spec.training),
                ),
                gloo=GlooConfig(
                    setting.addresses.address(place.host),
                    INTERFACE,
                    store,
                    FIRST_PORT,
                    silence_ns=DEFAULT_SILENCE_NS + setting.patience.outage_ns,
                ),
                span_log=str(setting.span_log(rank)),
                epoch_ns=setting.epoch_ns,
                device=DeviceSettings(
                    setting.device or "cpu",
                    spec.compute.threads or 1,
                    deterministic=bool(spec.compute.deterministic),
                ),
                kept=KeptFilesConfig(
                    None if gradients is None else str(gradients), snapshots=setting.snapshots(point, variant)
                ),
                parent_pid=setting.parent_pid,
            )
        )
    return configs
