"""This daemon's node, as it presents itself to others."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import pytest

from spyweb.daemon.cluster import has_content, place_of, reachable_url
from spyweb.settings.sections import ServerSettings


@pytest.mark.parametrize(
    ("server", "url"),
    [
        (ServerSettings(), ""),
        (ServerSettings(host="localhost"), ""),
        (ServerSettings(host="::1"), ""),
        (ServerSettings(host="10.0.0.7", enabled=False), ""),
        (ServerSettings(host="10.0.0.7", port=80, tls_cert="tls.pem"), "https://10.0.0.7:80"),
        (ServerSettings(host="fra.example"), "http://fra.example:7979"),
        (ServerSettings(host="0.0.0.0"), f"http://{platform.node()}:7979"),
    ],
)
def test_other_nodes_get_the_address_of_a_server_that_they_reach(server: ServerSettings, url: str) -> None:
    assert reachable_url(server) == url


def test_where_the_project_serves_content_it_is_the_address_of_the_dashboard_beside(tmp_path: Path) -> None:
    assert not has_content(tmp_path)
    (tmp_path / "ui").mkdir()
    server = ServerSettings(host="10.0.0.7", port=80)
    assert reachable_url(server, has_content(tmp_path)) == "http://10.0.0.7:81"
    assert reachable_url(replace(server, dashboard_port=9), True) == "http://10.0.0.7:9"


def test_each_data_directory_is_a_place_of_its_own_whatever_leads_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert place_of(tmp_path / "data") == place_of(tmp_path / "link")
    assert place_of(tmp_path / "data") != place_of(tmp_path / "other")
