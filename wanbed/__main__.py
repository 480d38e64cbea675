"""``python -m wanbed``: the command, wherever it is not installed."""

from wanbed.command import main

if __name__ == "__main__":
    main()
