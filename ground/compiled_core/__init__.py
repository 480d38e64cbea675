"""The compiled core: the simulator's hot modules, compiled from the very sources that run without it.

``wanbed compile`` builds it with mypyc into the user's cache, ``core_build``. The packages that have such modules call
``use_compiled_core`` when they are first imported, ``core_cache``. It is used only if it was built from the sources
that are there; otherwise the sources themselves run, and give the same to the byte.
"""
