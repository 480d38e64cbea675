"""Send a user's own files to the machines of a rack.

Ray's ``runtime_env`` sends wanbed itself, but not these: it replaces links by what they lead to, leaves out what a
``.gitignore`` names, has one copy for all runs, and keeps it after the run, below folders that everybody can write to.
"""
