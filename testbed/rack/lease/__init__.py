"""Hold hosts, processes, files and gates on one machine for one driver. All of it ends with the lease."""
