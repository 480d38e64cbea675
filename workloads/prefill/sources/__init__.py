"""Sources of requests: traces of public services, and arrivals drawn from a seed.

Every source is open loop: the arrival of a request never depends on when another one was served.
"""
