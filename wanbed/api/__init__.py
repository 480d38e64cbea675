"""The functions and classes of ``import wanbed``, each over what the command of the same name does."""
