"""Everything that runs on an emulated host: schedules, compute back ends, transports, and the rank's loop."""
