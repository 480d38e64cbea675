"""Train a model whose layers live in host memory and are loaded into the GPU group by group. Pure arithmetic."""
