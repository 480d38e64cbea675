"""Read what a trial has learnt: its losses, and its evaluation."""
