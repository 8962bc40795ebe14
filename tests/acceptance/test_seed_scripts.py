"""Scripts of the documents that started the project, as they are written there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.project import Project, eventually
from tests.fakes.web_server import unused_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

CIRCUIT_BREAKER = """
local max_failures = 5
local cooldown = 300
local last_reset = tonumber(store_get("breaker_last_reset") or "0")

if tonumber(store_get("breaker_failures") or "0") >= max_failures then
  if os.time() - last_reset < cooldown then
    log("circuit breaker open - skipping request")
    return
  end
  store_set("breaker_failures", "0")
  store_set("breaker_last_reset", tostring(os.time()))
end

local ok, err = http_get("https://api.example.com/status")
if not ok then
  local count = tonumber(store_get("breaker_failures") or "0") + 1
  store_set("breaker_failures", tostring(count))
  log("failure " .. count .. "/" .. max_failures .. ": " .. tostring(err.error))
end
"""


def test_the_circuit_breaker_opens_at_the_eleventh_failure_by_its_own_arithmetic(tmp_path: Path) -> None:
    """On a fresh store the first five failures only lead to a reset: the cooldown counts from the epoch."""
    project = Project(tmp_path)
    nobody = f"http://127.0.0.1:{unused_port()}/status"
    project.job("breaker", CIRCUIT_BREAKER.replace("https://api.example.com/status", nobody))
    with project.daemon() as daemon:
        for _ in range(10):
            project.result("breaker")
        assert "circuit breaker open" not in daemon.said()
        project.result("breaker")
        eventually(lambda: "circuit breaker open" in daemon.said())  # the log is written by a thread of its own
        assert daemon.said().count("failure 5/5") == 2
        daemon.kill()
    with project.daemon() as daemon:  # it stays open over kill -9
        project.result("breaker")
        eventually(lambda: "circuit breaker open" in daemon.said())
