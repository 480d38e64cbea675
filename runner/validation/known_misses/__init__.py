"""Hold the ranges of known misses against trials that were measured in virtual time."""
