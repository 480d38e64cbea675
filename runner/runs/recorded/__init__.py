"""Record the facts of a run beside its trials: the manifest, and the facts of plans and prefill."""
