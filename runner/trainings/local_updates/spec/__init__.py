"""The options of variants whose replicas synchronise seldom."""
