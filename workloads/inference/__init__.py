"""Inference of a Llama-shaped model in torch: prefill by stages, chunks and layers; the KV cache; decode."""
