"""ShardedEmbedding: a table of rows on servers, of which only those that are looked up move."""

from __future__ import annotations

import numpy as np

import tandem.ops as F
from tandem import dtypes
from tandem.autograd.modes import is_grad_enabled, no_grad
from tandem.distributed.servers.recipe import describe, settings_of
from tandem.distributed.servers.rows import KINDS, fresh_rows
from tandem.errors import DTypeError, IndexRangeError, ValueRangeError
from tandem.nn.candidates import LogUniformSampler
from tandem.nn.module import Module
from tandem.nn.parameter import Parameter
from tandem.nn.sampled_losses import sampled_softmax_loss
from tandem.tensors.constructors import asarray, empty


class ShardedEmbedding(Module):
    """An embedding whose table is divided over the servers of a ParameterServer: row i is on server i % servers.

    num_embeddings: rows; None: any whole numbers, as many as come. embedding_dim: numbers in a row
    optimizer: a class of td.optim that updates by rows (SGD, Adagrad, SparseAdam), with its settings: lr=0.1
    on_demand: whether rows are made when they are first looked up; otherwise all are there from the start, as zeros
    scale, seed: a new row is uniform in [-scale, scale), and the same however many servers there are
    limit: bytes that each server may use for rows and the optimiser's state

    Before a ParameterServer has the module it looks up rows that nobody has trained.

    >>> table = td.distributed.ShardedEmbedding(None, 4, td.optim.Adagrad, lr=0.1)
    >>> table(td.tensor([3, 10**12, 3])).shape
    (3, 4)
    """

    def __init__(
        self, num_embeddings: int | None, embedding_dim: int, optimizer=None, *, on_demand: bool = True, scale: float = 0.05,
        seed: int = 0, limit: int | None = None, **settings,
    ):  # fmt: skip
        super().__init__()
        if num_embeddings is None and not on_demand:
            raise ValueRangeError("ShardedEmbedding", "a table of any number of rows is made on demand only")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.on_demand, self.scale, self.seed, self.limit = on_demand, scale, seed, limit
        if optimizer is None:
            raise ValueRangeError("ShardedEmbedding", "no optimiser was given", fix="write td.optim.Adagrad, lr=0.1")
        self.optimizer = optimizer([Parameter(empty(1, embedding_dim))], **settings)
        self.optimizer.sparse_rule(self.optimizer.param_groups[0])  # or says that it does not update by rows
        self.moved = {"rows": 0, "bytes": 0, "calls": 0}
        self._server = None
        self._used: list[tuple] = []

    def extra_repr(self) -> str:
        rows = "any" if self.num_embeddings is None else self.num_embeddings
        return f"{rows}, {self.embedding_dim}"

    # -- on servers

    def bind(self, server, name: str, common: dict, snapshots: str | None):
        self._server, self.name = server, name
        n = len(server.servers)
        recipe, folder = describe(self.optimizer), name.replace("/", "-")
        self.specs = [
            {
                **common, "kind": "rows", "optimizer": recipe, "width": self.embedding_dim, "seed": self.seed, "scale": self.scale,
                "servers": n, "server": s, "limit": self.limit, "snapshots": f"{snapshots}/{folder}-{s}" if snapshots else None,
                "rows": None if self.on_demand else -(-(self.num_embeddings - s) // n),
            }
            for s in range(n)
        ]  # fmt: skip
        self._versions, self._generations = [0] * n, [0] * n

    def make(self):
        for s, spec in enumerate(self.specs):
            self._server.call(s, "ps.make", self.name, spec)

    def fetch(self, numbers: np.ndarray):
        """Rows of numbers that are all different: (n) -> (n, embedding_dim), a leaf whose gradient `push` sends."""
        if self._server is None:
            rows = asarray(fresh_rows(numbers, self.embedding_dim, self.seed, self.scale))
        else:
            rows = self._lookup(numbers)
        if is_grad_enabled():  # otherwise nobody asks for gradients, and a step may never come
            rows.requires_grad_(True)
            self._used.append((numbers, rows))
        return rows

    def _lookup(self, numbers: np.ndarray):
        server = self._server
        n = len(server.servers)
        places = [np.nonzero(numbers % n == s)[0] for s in range(n)]
        step = server.version
        asked = [s for s in range(n) if len(places[s])]
        calls = [
            (s, (self.name, step, self._generations[s], server.timeout), [asarray(numbers[places[s]])]) for s in asked
        ]
        made = empty(len(numbers), self.embedding_dim)
        with no_grad():
            for s, (state, (rows,)) in zip(asked, server.call_all("ps.lookup", calls), strict=True):
                self._versions[s] = state[
                    "version"
                ]  # the generation stays that of the pull: what servers have left is dropped
                made[asarray(places[s])] = rows
                self._count(rows.shape[0], rows.numel() * 4 + rows.shape[0] * 8, 1)
        return made

    def follow(self, generations: list[int]):
        self._generations = list(generations)

    def _count(self, rows: int, size: int, calls: int):
        self.moved["rows"] += rows
        self.moved["bytes"] += size
        self.moved["calls"] += calls

    def push(self, step: int) -> list[dict]:
        """Sends gradients of the rows that were looked up since the last push; servers without any are told so."""
        server, used = self._server, [(n, r.grad) for n, r in self._used if r.grad is not None]
        self._used.clear()
        count = len(server.servers)
        numbers = np.concatenate([n for n, _ in used]) if used else np.zeros(0, dtype=np.int64)
        values = F.concat([g for _, g in used]) if len(used) > 1 else used[0][1] if used else None
        settings = [settings_of(g) for g in self.optimizer.param_groups]
        calls = []
        for s in range(count):
            place = np.nonzero(numbers % count == s)[0]
            if not len(place) and server.mode in ("async", "bounded"):
                continue
            tensors = [asarray(numbers[place]), values[asarray(place)]] if len(place) else []
            head = (
                self.name,
                [str(server.worker)],
                step,
                self._versions[s] if len(place) else step,
                self._generations[s],
            )
            calls.append((s, (*head, KINDS, settings), tensors))
            self._count(len(place), len(place) * (8 + 4 * self.embedding_dim), 1)
        return [value for value, _ in server.call_all("ps.push", calls)]

    # -- use

    def forward(self, ids):
        """Rows of ids: (*s) int -> (*s, embedding_dim)."""
        flat = self._numbers(ids)
        unique, inverse = np.unique(flat, return_inverse=True)
        rows = self.fetch(unique).to(ids.device)
        local = asarray(inverse.astype(np.int64).reshape(-1)).to(ids.device)
        return F.reshape(F.index_select(rows, 0, local), (*ids.shape, self.embedding_dim))

    def _numbers(self, ids) -> np.ndarray:
        if ids.dtype.kind not in ("int", "uint"):
            raise DTypeError("ShardedEmbedding", f"ids are {ids.dtype}; they must be whole numbers")
        flat = ids.detach().cpu().numpy().reshape(-1).astype(np.int64)
        if flat.size and (flat.min() < 0 or (self.num_embeddings is not None and flat.max() >= self.num_embeddings)):
            worst = int(flat.min() if flat.min() < 0 else flat.max())
            rows = "any number of" if self.num_embeddings is None else self.num_embeddings
            raise IndexRangeError("ShardedEmbedding", f"id {worst} in a table of {rows} rows")
        return flat

    def sampled_softmax(self, inputs, labels, num_sampled: int, sampled_values=None):
        """Losses of classes whose weights are the rows of this table, by a sample of other classes: (b, embedding_dim), (b) -> (b).
        Only rows of labels and of sampled classes are looked up.

        sampled_values: (classes, expected counts of labels, of samples), as samplers of td.nn give them; a log-uniform sample of
        `num_embeddings` classes otherwise
        """
        labels = F.reshape(F.astype(labels.cpu(), dtypes.int64, copy=False), (-1, 1))
        if sampled_values is None:
            if self.num_embeddings is None:
                raise ValueRangeError(
                    "sampled_softmax", "a table of any number of rows has no classes to draw a sample from",
                    fix="pass sampled_values=, such as a sampler of td.nn gives, or make the table with num_embeddings",
                )  # fmt: skip
            sampled_values = LogUniformSampler(self.num_embeddings).sample(labels, num_sampled, True, None)
        sampled, of_labels, of_sampled = sampled_values
        both = np.concatenate([self._numbers(labels), self._numbers(sampled)])
        unique, inverse = np.unique(both, return_inverse=True)
        there = inputs.device
        rows = self.fetch(unique).to(there)
        local = asarray(inverse.astype(np.int64).reshape(-1)).to(there)
        count = labels.shape[0]
        values = (local[count:], of_labels.to(there), of_sampled.to(there))
        bias = F.full((len(unique),), 0.0, device=there)
        return sampled_softmax_loss(
            rows,
            bias,
            F.reshape(local[:count], (-1, 1)),
            inputs,
            num_sampled,
            len(unique),
            sampled_values=values,
            sparse=False,
        )
