"""How much slower a run over a rack goes than what it emulates, by what its machines carry."""
