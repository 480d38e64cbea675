"""Sources of requests: traces of public services, and arrivals drawn from a seed.

Every source is open loop: when a request arrives never depends on when another was served.
"""
