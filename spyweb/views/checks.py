"""The results of checks, as the rows of their runs keep them, in words.  Pure."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from spyweb.model import Outcome, Run
from spyweb.views.runs import LastRun, describe_details
from spyweb.words import counted, round_duration


class CheckResult(Struct, frozen=True, kw_only=True):
    """The result of a check that succeeded; each kind has some of these fields."""

    latency: float | None = None  # in ms
    status: int | None = None
    loss: float | None = None  # 0 to 1
    cert_days: int | None = None  # of the certificate of an address
    days: int | None = None  # the same of kind tls

    @property
    def certificate_days(self) -> int | None:
        return self.days if self.cert_days is None else self.cert_days

    @property
    def words(self) -> str:
        """Return `85 ms, 200, certificate 43 days`."""
        days = self.certificate_days
        parts = [
            "" if self.latency is None else round_duration(self.latency),
            str(self.status or ""),
            f"{self.loss:.0%} lost" if self.loss else "",
            "" if days is None else f"certificate {counted(days, 'day')}",
        ]
        return ", ".join(filter(None, parts))


_read = msgspec.json.Decoder(CheckResult).decode


def describe_end(run: Run | LastRun, *, is_check: bool) -> str:
    """Describe a run beside its outcome; of a check, what it has measured."""
    result = check_result(run) if is_check else None
    return (result and result.words) or describe_details(run)


def check_result(last: Run | LastRun | None) -> CheckResult | None:
    """Return the result of a check's run; None where it did not succeed, or its result is none of a check."""
    if last is None or last.outcome is not Outcome.SUCCESS:
        return None
    try:
        return _read(last.result)
    except msgspec.DecodeError:
        return None
