"""What an import in the daemon's process leaves out, seen in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LEAN = """
import mimetypes, os, ssl, sys
from spyweb.daemon.lean import lean_imports
before = dict(os.environ), mimetypes.knownfiles
with lean_imports():
    import structlog
    from aiohttp import connector
assert (dict(os.environ), mimetypes.knownfiles) == before
"""
CERTIFICATES = "len(ssl.create_default_context().get_ca_certs())"

pytestmark = pytest.mark.slow


def shown(value: str, after: str) -> str:
    environment = {name: text for name, text in os.environ.items() if name != "SSL_CERT_FILE"}
    command = [sys.executable, "-c", f"{after}\nprint({value})"]
    return subprocess.run(command, env=environment, capture_output=True, check=True, text=True, timeout=20).stdout


def test_libraries_load_less() -> None:
    loaded = shown("[name for name in sys.modules if name.startswith(('rich.', 'frozenlist._'))]", LEAN)
    assert loaded.strip() == "[]"
    trusted = shown("connector._SSL_CONTEXT_VERIFIED.cert_store_stats()['x509']", LEAN)
    assert trusted.strip() == "0"


def test_later_this_machines_certificates_are_read_as_ever() -> None:
    assert shown(CERTIFICATES, LEAN) == shown(CERTIFICATES, "import ssl")
