"""A folder for PYTHONPATH: the Python that finds it records the iterations of the training that it runs.

It works in any Python from 3.9 on and imports nothing but the standard library, so wanbed need not be installed there.
"""
