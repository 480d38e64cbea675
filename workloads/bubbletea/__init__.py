"""Prefill as a service in the bubbles of training: requests, prefill profiles, settings and control."""
