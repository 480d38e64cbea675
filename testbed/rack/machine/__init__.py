"""Run on each machine of a rack for one driver: hosts, their part of the network, processes, files and gates."""
