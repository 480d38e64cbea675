"""Run the command as ``python -m wanbed``, where it is not installed."""

from wanbed.command import main

if __name__ == "__main__":
    main()
