"""Gloo as the network of ranks on several hosts: by a plugin that is built where Gloo's library is found (cmake/gloo.cmake)."""

from __future__ import annotations

import contextlib
import os
import socket

from tandem import _runtime
from tandem.distributed.engines import ask
from tandem.distributed.network import HostsEngine
from tandem.distributed.store import Store

PLUGIN = "libtandem_gloo.so"


def find_plugin() -> str | None:
    """The plugin: TANDEM_GLOO, or in the package. None where it was not built."""
    if path := os.environ.get("TANDEM_GLOO"):
        return path
    beside = os.path.join(os.path.dirname(_runtime.__file__), PLUGIN)
    return beside if os.path.exists(beside) else None


class GlooEngine(HostsEngine):
    name = "gloo"

    def __init__(self, store: Store, rank: int, hosts: list[str], whereabouts):
        super().__init__(store, rank, len(hosts), whereabouts, _runtime.World())
        self._mesh = _runtime.GlooMesh(
            find_plugin(), rank, len(hosts), _own_address(store, rank, len(hosts)), os.environ.get("GLOO_SOCKET_IFNAME", ""),
            lambda key, value: store.set(f"gloo/{key}", value.hex()),
            lambda key: bytes.fromhex(ask(store, f"gloo/{key}", rank)),
        )  # fmt: skip

    def _member(self, token, ranks, rank):
        return _runtime.HostsMember.by_gloo(self.world, self._mesh, list(ranks), rank, token)

    def close(self):
        self._mesh = None  # connections end when the last group has gone


def _own_address(store: Store, rank: int, size: int) -> str:
    """The address by which other ranks reach this host: that of the way to the key-value service; where the service is on this
    host, that of the way to another rank."""
    mine = _way_to(store.address.rpartition(":")[0])
    store.set(f"address/{rank}", mine)
    others = [ask(store, f"address/{r}", rank) for r in range(size)]
    far = [address for address in others if not address.startswith("127.")]
    return mine if mine not in ("", "127.0.0.1") or not far else _way_to(far[0])


def _way_to(host: str) -> str:
    """This host's address on the way to another one; nothing is sent."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect((host, 9))
        return way.getsockname()[0]
    return "127.0.0.1"
