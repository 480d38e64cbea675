"""Compare the paper's claims with the reproduced results."""
