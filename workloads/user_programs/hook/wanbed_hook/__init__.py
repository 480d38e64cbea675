"""Record iterations, optimizer steps, computation and collectives of the program that runs in this Python."""
