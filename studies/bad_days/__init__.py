"""Measure schedules on a WAN's bad days: the experiments, the measure, and the page."""
