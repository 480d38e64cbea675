"""Traces of other programs as workloads: read, checked, and placed on the hosts' GPUs."""
