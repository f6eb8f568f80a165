from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest
from torch.distributed import HashStore, Store  # type: ignore[attr-defined]

from strobe.comm.base import CommError
from strobe.comm.rendezvous import bound_tcp_timeouts, choose_interface, create_round_store, find_interface
from strobe.errors import OptionError

RANKS = 3


def test_an_unknown_host_has_no_interface() -> None:
    assert find_interface("no.such.host.invalid") is None


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    return monkeypatch


def test_an_interface_set_by_the_user_is_kept(master: pytest.MonkeyPatch) -> None:
    master.setenv("GLOO_SOCKET_IFNAME", "eth7")
    choose_interface()
    assert os.environ["GLOO_SOCKET_IFNAME"] == "eth7"


@pytest.mark.usefixtures("master")
def test_gloo_uses_the_interface_that_reaches_the_master() -> None:
    choose_interface()
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"


def test_a_loopback_master_is_refused_with_several_machines(master: pytest.MonkeyPatch) -> None:
    master.setenv("LOCAL_WORLD_SIZE", "1")
    with pytest.raises(OptionError, match="--local-addr"):
        choose_interface()


def one_round(store: Store, late: int, word: str) -> list[str]:
    """All ranks join, one of them late; returns the word of rank 0 as each rank reads it."""

    def rank(number: int) -> str:
        sleep(0.2 if number == late else 0)
        round_store = create_round_store(store, number, RANKS, 10)
        if number == 0:
            round_store.set("word", word)
        return str(round_store.get("word").decode())

    with ThreadPoolExecutor(RANKS) as ranks:
        return list(ranks.map(rank, range(RANKS)))


@pytest.mark.parametrize("late", range(RANKS))
def test_ranks_never_read_keys_of_an_earlier_start(late: int) -> None:
    store = HashStore()
    assert one_round(store, 1, "old") == ["old"] * RANKS
    assert one_round(store, late, "new") == ["new"] * RANKS


def test_joining_times_out_without_other_ranks() -> None:
    with pytest.raises(CommError, match="not all 2 ranks came"):
        create_round_store(HashStore(), 0, 2, 0.1)


def test_keepalive_detects_a_lost_peer_by_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as link:
        assert bound_tcp_timeouts(8.0) >= 1
        assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, every, probes = (
            link.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + every * probes == 8
        assert not server.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
