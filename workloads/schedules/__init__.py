"""Pipeline schedules: each is written once and asked by a simulator and by a rank alike."""
