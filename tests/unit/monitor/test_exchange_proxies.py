"""Which proxy the next request takes."""

from __future__ import annotations

from spyweb.model import Proxies, Rotation
from spyweb.monitor.exchange import ProxyRotation

URLS = ("http://a", "http://b", "http://c")


def turns(rotation: Rotation, *random: float) -> ProxyRotation:
    left = iter(random)
    return ProxyRotation(Proxies(urls=URLS, rotation=rotation), lambda: next(left))


def test_round_robin_goes_through_all_of_them_whoever_asks() -> None:
    taken = turns(Rotation.ROUND_ROBIN)
    assert [taken.next_for(worker) for worker in (1, 1, 2, 1)] == ["http://a", "http://b", "http://c", "http://a"]


def test_sticky_gives_each_worker_one_for_good() -> None:
    taken = turns(Rotation.STICKY)
    assert [taken.next_for(worker) for worker in (1, 2, 1, 4)] == ["http://a", "http://b", "http://a", "http://a"]


def test_random_may_give_any_of_them() -> None:
    taken = turns(Rotation.RANDOM, 0.0, 0.5, 0.999)
    assert [taken.next_for(1) for _ in range(3)] == list(URLS)


def test_without_proxies_there_is_none() -> None:
    assert ProxyRotation(None, lambda: 0.0).next_for(1) is None
