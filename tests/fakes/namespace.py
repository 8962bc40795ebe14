"""A network namespace of its own, in which nobody answers for one network."""

from __future__ import annotations

import shutil
import subprocess

RANGE = "/proc/sys/net/ipv4/ping_group_range"
APART = ("unshare", "--user", "--map-root-user", "--net", "sh", "-ec")
MADE = f"ip link set lo up; ip route add 198.51.100.0/24 dev lo; test -w {RANGE}"
NO_NAMESPACE = "no network namespace can be made here"


def can_be_apart() -> bool:
    asked = [*APART, MADE]
    return bool(shutil.which("unshare")) and not subprocess.run(asked, capture_output=True, check=False).returncode
