"""What runs on a host: schedules, compute back ends, transports, and the rank's loop."""
