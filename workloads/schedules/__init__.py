"""Pipeline schedules. Each is written once; the simulator and the ranks use the same class."""
