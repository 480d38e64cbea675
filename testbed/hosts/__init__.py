"""Hosts of an emulated network: how they are made, joined and used."""
