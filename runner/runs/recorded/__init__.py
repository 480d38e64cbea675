"""What a run records of itself beside its trials: the manifest, and the facts of plans and prefill."""
