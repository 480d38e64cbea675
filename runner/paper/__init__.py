"""The paper, reproduced: its experiments run, compared with the simulator, and held against what it claims."""
