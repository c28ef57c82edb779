"""``python -m asyncrevoke``: the command line."""

from asyncrevoke.cli import main

main()
