"""Measure profiles: how long this machine's GPU or CPU takes for the stages of a model, and to prefill prompts."""
