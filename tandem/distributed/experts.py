"""A mixture of experts, and its experts on several ranks.

Note [Exchange of tokens]
Tokens come in groups. A group sorts its tokens into slots (experts, groups, slots, width), of which a rank has its groups' part;
experts need all groups' slots of an expert. Between the two placements, Shard(1) and Shard(0), lies one all-to-all, and another one
on the way back. What a token gets does not depend on the mesh: only on how many groups and slots there are.
"""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import _runtime, dtypes, nn
from tandem.distributed.parallel import ParallelStyle, _along, _of, _place_parameter, distribute_module
from tandem.distributed.sharding.mesh import Mesh
from tandem.distributed.sharding.parts import parts_of
from tandem.distributed.sharding.placements import Shard
from tandem.distributed.sharding.tensor import redistribute
from tandem.errors import ShapeError, ValueRangeError
from tandem.nn.module import Module
from tandem.nn.parameter import Parameter


class MixtureOfExperts(Module):
    """Each token goes to the `top_k` experts, two-layer networks, that a router scores best; their results are added, weighted.

    groups: tokens are sorted to experts in so many groups, one after the other; a multiple of the ranks that share tokens
    slots: tokens of a group that an expert takes; what comes later is passed over. None: as many as there are

    x: (*s, width) -> (*s, width)

    >>> td.distributed.MixtureOfExperts(4, 8, experts=3)(td.ones(5, 4)).shape
    (5, 4)
    """

    def __init__(
        self, width: int, hidden: int, experts: int, top_k: int = 2, groups: int = 1, slots: int | None = None
    ):
        super().__init__()
        if not 1 <= top_k <= experts:
            raise ValueRangeError("MixtureOfExperts", f"top_k={top_k} of {experts} experts")
        self.experts, self.top_k, self.groups, self.slots = experts, top_k, groups, slots
        self.router = nn.Linear(width, experts, bias=False)
        self.w1, self.w2 = (
            Parameter(_runtime.empty((experts, width, hidden), dtypes.default_float())),
            Parameter(_runtime.empty((experts, hidden, width), dtypes.default_float())),
        )
        for w in (self.w1, self.w2):
            nn.init.uniform_(w, -1 / math.sqrt(w.shape[1]), 1 / math.sqrt(w.shape[1]))
        self._exchange = None  # (to the experts, back): what brings slots to other placements

    def forward(self, x):
        shape, width = x.shape, x.shape[-1]
        tokens = math.prod(shape[:-1])
        if tokens % self.groups:
            raise ShapeError("MixtureOfExperts", f"{tokens} tokens cannot be divided into {self.groups} groups")
        grouped = x.reshape(self.groups, tokens // self.groups, width)
        chosen, weights = self._route(grouped)
        slots = (chosen.permute(0, 2, 3, 1).reshape(self.groups, -1, chosen.shape[1]) @ grouped).reshape(
            self.groups, self.experts, -1, width
        )
        made = self._experts(slots.permute(1, 0, 2, 3)).permute(1, 0, 2, 3)
        made = weights.reshape(self.groups, weights.shape[1], -1) @ made.reshape(self.groups, -1, width)
        return made.reshape(shape)

    def _route(self, x):
        """(groups, tokens, experts, slots): which slot a token gets, and the weight of what comes back from it."""
        scores = F.softmax(self.router(x), -1)
        best, index = F.topk(scores, self.top_k, -1)
        best = best / best.sum(-1, keepdims=True)
        slots = self.slots or x.shape[1]
        taken, chosen, weights = None, None, None
        for k in range(self.top_k):
            mine = F.one_hot(index[:, :, k], self.experts).to(x.dtype)
            before = F.cumsum(mine, 1) - mine
            place = ((before if taken is None else before + taken) * mine).sum(-1).to(index.dtype)
            taken = mine.sum(1, keepdims=True) if taken is None else taken + mine.sum(1, keepdims=True)
            inside = (place < slots).to(x.dtype)
            at = F.one_hot(F.minimum(place, slots - 1), slots).to(x.dtype) * inside[:, :, None]
            pair = mine[:, :, :, None] * at[:, :, None, :]
            chosen = pair if chosen is None else chosen + pair
            weighted = pair * best[:, :, k][:, :, None, None]
            weights = weighted if weights is None else weights + weighted
        return chosen, weights

    def _experts(self, slots):
        """(experts, groups, slots, width), each expert on its own."""
        if self._exchange is not None:
            slots = self._exchange[0](slots)
        experts, groups, count, width = slots.shape
        hidden = F.gelu(slots.reshape(experts, groups * count, width) @ self.w1)
        made = (hidden @ self.w2).reshape(experts, groups, count, width)
        return made if self._exchange is None else self._exchange[1](made)


class ExpertParallel(ParallelStyle):
    """A MixtureOfExperts whose experts are divided among the ranks, as its tokens are (along their first axis)."""

    def apply(self, module: MixtureOfExperts, mesh: Mesh, axis: int = 0) -> Module:
        if not isinstance(module, MixtureOfExperts):
            raise ValueRangeError("ExpertParallel", f"a {type(module).__name__} is no MixtureOfExperts")
        for name in ("w1", "w2"):
            _place_parameter(module, name, mesh, _along(Shard(0), mesh, axis))
        distribute_module(module, mesh)

        def brought(dim: int):
            return lambda x: redistribute(x, mesh, _of(Shard(dim), mesh, axis, x)) if parts_of(x) is not None else x

        module._exchange = brought(0), brought(1)
        return module
