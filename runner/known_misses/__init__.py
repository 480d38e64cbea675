"""Say of a trial how far simulations like it are known to be off from virtual time."""
