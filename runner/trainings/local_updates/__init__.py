"""Replicas that train alone and synchronise seldom: DiLoCo, and ATOM, which swaps layers as well."""
