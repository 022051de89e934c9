"""The calls of parameter servers that every task answers. A server is made by the first call that asks for it, under a name."""

from __future__ import annotations

import threading

from tandem.autograd.modes import no_grad
from tandem.distributed.cluster.task import extensions
from tandem.distributed.servers.rows import Rows
from tandem.distributed.servers.shard import Shard


class Service:
    def __init__(self):
        self.shards: dict[str, Shard | Rows] = {}
        self.lock = threading.Lock()  # guards the table

    def calls(self) -> dict:
        made = {}
        for name in ("make", "pull", "push", "snapshots", "snapshot", "restore", "describe", "drop", "lookup"):
            made[f"ps.{name}"] = getattr(self, name)
        return made

    def make(self, connection, arguments, tensors):
        """(name, spec), values: gives the version and generation of the shard of this name, made now unless it is there."""
        name, spec = arguments
        with self.lock:
            found = self.shards.get(name)
            if found is None:
                kind = Rows if spec.get("kind") == "rows" else Shard
                found = self.shards[name] = kind(spec, tensors)
                if spec.get("snapshots") and spec.get("first"):
                    found.begin_snapshots(spec["resume"])
            else:
                found.check(name, spec, tensors)
        return {"version": found.version, "generation": found.generation}, ()

    def find(self, name: str):
        return self.shards.get(name)

    def pull(self, connection, arguments, tensors):
        name, step, generation, timeout = arguments
        shard = self.find(name)
        return (None, ()) if shard is None else shard.pull(step, generation, timeout)

    def push(self, connection, arguments, tensors):
        name, *rest, kinds, settings = arguments
        shard = self.find(name)
        return None if shard is None else shard.push(*rest, kinds, tensors, settings), ()

    def lookup(self, connection, arguments, tensors):
        name, step, generation, timeout = arguments
        table = self.find(name)
        if table is None:
            return None, ()
        state, rows = table.lookup(tensors[0], step, generation, timeout)
        return state, [rows]

    def snapshots(self, connection, arguments, tensors):
        shard = self.find(arguments[0])
        return None if shard is None else shard.snapshots(), ()

    def snapshot(self, connection, arguments, tensors):
        shard = self.find(arguments[0])
        with shard.changed:
            shard.snapshot()
        shard.flush()
        return shard.version, ()

    def restore(self, connection, arguments, tensors):
        name, version, generation = arguments
        with no_grad():
            self.find(name).restore(version, generation)
        return None, ()

    def describe(self, connection, arguments, tensors):
        shard = self.find(arguments[0])
        return None if shard is None else shard.describe(), ()

    def drop(self, connection, arguments, tensors):
        with self.lock:
            shard = self.shards.pop(arguments[0], None)
        if shard is not None:
            shard.close()
        return None, ()

    def close(self):
        with self.lock:
            shards, self.shards = list(self.shards.values()), {}
        for shard in shards:
            shard.close()


def _extend(task) -> dict:
    service = task.parameter_service = Service()
    task.on_close.append(service.close)
    return service.calls()


extensions.append(_extend)
