"""Start the processes that train, and hand each its plan."""
