"""Compute back ends: one class each says what callers ask of a kind of compute, and makes what computes in a rank."""
