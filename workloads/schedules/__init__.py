"""Pipeline schedules. Each is written once, and a simulator and a rank ask it alike."""
