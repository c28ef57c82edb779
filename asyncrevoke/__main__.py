"""``python -m asyncrevoke``: the command line."""

from asyncrevoke.cli import main

if __name__ == "__main__":  # a worker process of run_in="process" imports this module
    main()
