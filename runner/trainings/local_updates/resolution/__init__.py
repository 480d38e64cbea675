"""Resolve variants whose replicas train alone and synchronise seldom."""
