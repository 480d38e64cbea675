"""``wanbed profile``: decide what to measure on which device, check that it fits, measure it, and make the profile."""
