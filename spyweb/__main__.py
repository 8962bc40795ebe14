"""The command line: as `spyweb`, and as `python -m spyweb`."""

from spyweb.daemon.loading import end_at_sigterm, ended_by_ctrl_c

end_at_sigterm()
with ended_by_ctrl_c():
    from spyweb.cli.main import main

if __name__ == "__main__":
    main()
