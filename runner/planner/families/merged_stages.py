"""Give replicas of fewer stages the costs of the stages that they merge, where the file writes costs stage by stage."""

from wanbed.runner.experiment.compute_spec import ComputeSpec

_ADD_UP = ("forward", "backward", "backward_weight", "recompute", "optimizer", "gradient")


def merged_stages(compute: ComputeSpec, stages: int, count: int) -> ComputeSpec:
    """Return the costs of the same model in ``count`` stages, each of which merges neighbours of ``stages``.

    Times and gradients of merged stages add up; of the activations those between the new stages are left. What a
    profile or the model's dimensions give is not written, and follows the number of stages anyway. Raise ValueError if
    ``count`` does not divide ``stages``.
    """
    if stages % count:
        raise ValueError(f"{count} stages cannot merge {stages} evenly")
    if count == stages:
        return compute
    each = stages // count
    changed: dict[str, tuple[int, ...]] = {}
    for name in _ADD_UP:
        if (written := getattr(compute, name)) is not None:
            values = written if isinstance(written, tuple) else (written,) * stages
            changed[name] = tuple(sum(values[start : start + each]) for start in range(0, stages, each))
    if isinstance(compute.activation, tuple):
        changed["activation"] = compute.activation[each - 1 :: each]
    return compute.model_copy(update=changed)
