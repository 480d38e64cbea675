"""Work that is replayed from a trace: for each rank a graph of computations, messages and collectives."""
