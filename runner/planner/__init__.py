"""Choose the datacenters, the number of DP-cells and the placement of stages: Atlas's Algorithm 1 and better searches.

``planning`` runs a search over the candidates of a task, priced by the simulator.
"""
