"""Admit requests and place their prefill."""
