"""Provide network presets: named WANs with the latencies, rates and impairments of their links."""
