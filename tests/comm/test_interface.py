from __future__ import annotations

import os

import pytest

from strobe.comm.interface import choose_interface, interface_towards
from strobe.errors import OptionError


def test_the_way_to_this_machine_is_its_loopback() -> None:
    assert interface_towards("127.0.0.1") == "lo"


def test_a_host_that_cannot_be_found_has_no_interface() -> None:
    assert interface_towards("no.such.host.invalid") is None


@pytest.fixture(autouse=True)
def master(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")


def test_an_interface_that_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    choose_interface()
    assert os.environ["GLOO_SOCKET_IFNAME"] == "eth7"


def test_gloo_is_told_the_interface_towards_the_master() -> None:
    choose_interface()
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"


def test_an_address_that_other_machines_cannot_reach_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    with pytest.raises(OptionError, match="--local-addr"):
        choose_interface()
