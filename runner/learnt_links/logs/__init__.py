"""Read logs of packets: CSV files, and captures of one or both ends."""
