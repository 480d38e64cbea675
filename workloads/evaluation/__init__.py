"""Evaluate what a training has learnt on sequences that it never saw"""
