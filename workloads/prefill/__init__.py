"""Prefill as a service in the bubbles of training: requests, the model they are for, and how long it takes."""
