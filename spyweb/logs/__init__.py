"""What spyweb says: its own lines on stdout, each job's hooks.log, and the first screen of `start`."""

from spyweb.logs.banner import JobLine, StartReport, describe_start
from spyweb.logs.job import JobLogs
from spyweb.logs.output import set_up

__all__ = ["JobLine", "JobLogs", "StartReport", "describe_start", "set_up"]
