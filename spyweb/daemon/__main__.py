"""Start the daemon's process, which `spyweb start` becomes: `python -m spyweb.daemon --root DIR --flags JSON`."""

from __future__ import annotations

import faulthandler
import gc
import sys

from spyweb.daemon.startup import end_at_sigterm, ended_by_ctrl_c, open_standard_streams, outlive_hang_up

open_standard_streams()
faulthandler.enable()  # a process ended by SIGBUS or SIGSEGV says so on stderr
end_at_sigterm()
outlive_hang_up()
gc.disable()  # an import makes no garbage, and looking for it costs a tenth of a start
sys.modules["rich"] = None  # type: ignore[assignment]  # structlog would import it, only to have it at hand
with ended_by_ctrl_c():
    from spyweb.daemon.process import main
gc.freeze()
gc.enable()

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
