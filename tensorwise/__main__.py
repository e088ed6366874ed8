"""``python -m tensorwise``: the command line."""

from tensorwise.front.cli import main

if __name__ == "__main__":
    main()
