"""What each channel took is counted, and the last reason kept."""

from __future__ import annotations

from spyweb.alerts.tally import AttemptTallies, ChannelTally
from tests.fakes.clock import START_MS, FakeClock


def test_attempts_are_counted_and_the_last_reason_is_kept() -> None:
    clock = FakeClock()
    tallies = AttemptTallies(clock)
    tallies.attempted("ops", "answered 500")
    clock.advance(1)
    tallies.attempted("ops", None)
    tallies.attempted("phone", "x" * 1_000)
    assert tallies.of == {
        "ops": ChannelTally(sent=1, failed=1, sent_ms=START_MS + 1_000, failed_ms=START_MS, error="answered 500"),
        "phone": ChannelTally(failed=1, failed_ms=START_MS + 1_000, error="x" * 300),
    }
