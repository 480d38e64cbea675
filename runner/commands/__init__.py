"""The commands of ``wanbed``, one file each."""
