"""Emulate one network over several machines, without Ray: ``driver`` is on one of them, ``machine`` on each.

The modules beside these folders are what both know: the plan of a machine, orders, and how a machine is called.
"""
