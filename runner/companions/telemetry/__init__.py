"""Readings taken beside a training: counters of links, TCP, RDMA and GPUs, and the load of the machine."""
