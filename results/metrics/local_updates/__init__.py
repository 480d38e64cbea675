"""Figures of replicas that train alone and synchronise seldom."""
