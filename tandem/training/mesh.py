"""Training on a mesh of ranks: batches become sharded tensors, and all ranks write checkpoints together."""

from __future__ import annotations

import os

import tandem.ops as F
from tandem import _runtime
from tandem.errors import ShardingError
from tandem.tree import flatten, unflatten


class OnMesh:
    """Places a model's parameters that are not sharded yet, replicated, and the batches.

    Along the mesh axis "data" every rank's loader gives it a part of the batch (td.data.DistributedSampler); ranks that differ
    along other axes only, and all ranks where there is no such axis, load the same.
    """

    def __init__(self, mesh, model):
        from tandem.distributed.parallel import distribute_module

        self.mesh = mesh
        self.axis = mesh.axis_names.index("data") if "data" in mesh.axis_names else None
        distribute_module(model, mesh)

    def batch(self, batch):
        """A batch of this rank as part of the batch of all."""
        leaves, structure = flatten(batch)
        return unflatten(structure, [self._placed(x) if isinstance(x, _runtime.Tensor) else x for x in leaves])

    def _placed(self, x):
        from tandem.distributed.sharding import Replicate, Shard, from_local

        placements = [Shard(0) if m == self.axis and x.ndim else Replicate() for m in range(self.mesh.ndim)]
        if self.axis is None or not x.ndim:
            return from_local(x, self.mesh, placements)
        group = self.mesh.get_group(self.axis)
        sizes = F.all_gather(F.full((1,), x.shape[0], dtype="int64"), group.token, group.size()).tolist()
        total = sum(sizes)
        if sizes != [total // len(sizes) + (i < total % len(sizes)) for i in range(len(sizes))]:
            raise ShardingError(
                "Trainer", f"ranks have {sizes} samples of a batch; earlier ranks may have one more than later ones",
                fix="use drop_last=True, or td.data.DistributedSampler with padding",
            )  # fmt: skip
        return from_local(x, self.mesh, placements, shape=(total, *x.shape[1:]))


def whole(result):
    """What metrics look at: all elements."""
    return (
        result.full_tensor()
        if isinstance(result, _runtime.Tensor) and _runtime.parts_of(result) is not None
        else result
    )


class MeshCheckpoints:
    """The checkpoint of a run, written by all ranks; any other mesh reads it. The interface of CheckpointManager."""

    def __init__(self, folder: str, model, optimizer, parts: dict):
        self.folder, self.model, self.optimizer = folder, model, optimizer
        self.parts = parts  # what has a state_dict of plain values: scheduler, loader, history
        self.extra: dict = {}

    def latest(self):
        path = os.path.join(self.folder, "index.json")
        return path if os.path.exists(path) else None

    def save(self, step: int, extra: dict):
        from tandem.distributed import checkpoint

        states = {name: part.state_dict() for name, part in self.parts.items()}
        checkpoint.save(self.folder, self.model, self.optimizer, {**extra, "parts": states})

    def restore(self):
        from tandem.distributed import checkpoint

        self.extra = checkpoint.load(self.folder, self.model, self.optimizer)
        for name, part in self.parts.items():
            if name in self.extra["parts"]:
                part.load_state_dict(self.extra["parts"][name])

    def wait(self):
        pass
