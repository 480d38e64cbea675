"""Studies made with wanbed: each runs experiments, and writes a page, tables and pictures from their results.

They are run from the checkout, as ``python -m studies.paper``, and are not installed with wanbed.
"""
