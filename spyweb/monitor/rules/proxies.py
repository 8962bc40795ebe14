"""Choose the proxy of the next request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spyweb.model import Proxies, Rotation


@dataclass(slots=True)
class ProxyRotation:
    """Rotates the proxies of one version of a job, for all its workers."""

    proxies: Proxies | None
    random: Callable[[], float]  # 0 ≤ x < 1
    taken: int = 0

    def next_for(self, worker: int) -> str | None:
        """Return the proxy for this worker, counted from 1."""
        if self.proxies is None or not self.proxies.urls:
            return None
        urls = self.proxies.urls
        match self.proxies.rotation:
            case Rotation.STICKY:
                return urls[(worker - 1) % len(urls)]
            case Rotation.RANDOM:
                return urls[int(self.random() * len(urls))]
            case Rotation.ROUND_ROBIN:
                self.taken += 1
                return urls[(self.taken - 1) % len(urls)]
