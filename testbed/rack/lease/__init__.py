"""What one machine holds for one driver: hosts, processes, files and gates. All of it ends with the lease."""
