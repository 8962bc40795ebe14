"""Start the command line, as `spyweb` and as `python -m spyweb`."""

import gc
import sys

from spyweb.daemon.startup import end_at_sigterm, ended_by_ctrl_c, open_standard_streams, outlive_hang_up

open_standard_streams()
end_at_sigterm()
if "start" in sys.argv:  # it becomes the daemon
    outlive_hang_up()
gc.disable()  # until the command is imported: imports make no garbage, and a collection takes a tenth of a start
with ended_by_ctrl_c():
    from spyweb.cli.main import main

if __name__ == "__main__":
    main()
