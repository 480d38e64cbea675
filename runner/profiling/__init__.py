"""``wanbed profile``: what is measured on which device, whether it fits there, and the profile that comes of it."""
