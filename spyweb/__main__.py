"""The command line: as `spyweb`, and as `python -m spyweb`."""

from spyweb.daemon.loading import ended_by_ctrl_c

with ended_by_ctrl_c():
    from spyweb.cli.main import main

if __name__ == "__main__":
    main()
