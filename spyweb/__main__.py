"""Lets `python -m spyweb` run the command line."""

from spyweb.cli.main import main

main()
