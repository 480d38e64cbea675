"""Make the configuration of each rank of a variant that is a baseline of torch's."""

from wanbed.runner.companions.losses.resolution import held_out, learning_seed
from wanbed.runner.emulation.rank_configs import FIRST_PORT, SharedConfig
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.stage_costs import model_config
from wanbed.workloads.baselines.baseline_config import DEFAULT_SILENCE_NS, BaselineConfig

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
                rank=rank,
                host=place.host.name,
                datacenter=place.datacenter,
                gpu=place.gpu,
                pipeline=place.pipeline,
                stage=place.stage,
                stages=placement.stages,
                pipelines=variant.pipelines,
                microbatches=variant.microbatches,
                iterations=spec.training.iterations,
                schedule=variant.schedule,
                config=model_config(spec, "torch"),
                precision=spec.training.precision,
                seed=learning_seed(spec, variant.repeat),
                deterministic=bool(spec.compute.deterministic),
                learning_rate=spec.training.learning_rate,
                text=point.text,
                listen_address=setting.addresses.address(place.host),
                interface=INTERFACE,
                rendezvous_address=store,
                rendezvous_port=FIRST_PORT,
                span_log=str(setting.span_log(rank)),
                epoch_ns=setting.epoch_ns,
                silence_ns=DEFAULT_SILENCE_NS + setting.patience.outage_ns,
                gradients=None if gradients is None else str(gradients),
                parent_pid=setting.parent_pid,
                threads=spec.compute.threads or 1,
                device=setting.device or "cpu",
                held_out=held_out(spec.training),
                snapshots=setting.snapshots(point, variant),
            )
        )
    return configs
