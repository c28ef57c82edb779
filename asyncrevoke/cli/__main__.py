"""``python -m asyncrevoke.cli``."""

from asyncrevoke.cli import main

main()
