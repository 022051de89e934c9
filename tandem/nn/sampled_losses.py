"""Losses over very many classes, of which a few are drawn: sampled softmax, noise-contrastive estimation; sharded lookups."""

from __future__ import annotations

import contextlib

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.nn.bags import renormalize_rows_
from tandem.nn.candidates import LogUniformSampler
from tandem.ops.edges import check_ids
from tandem.ops.partition import dynamic_stitch, rows_of_parts
from tandem.ops.random import Generator
from tandem.sparse.lookup import rows_at, sparse_embedding


def _shard_of(ids, shards, strategy: str):
    """Of every id: the shard that has it, and its row there."""
    count = len(shards)
    if strategy == "mod":
        return F.remainder(ids, count), F.floor_divide(ids, count)
    if strategy != "div":
        raise ValueRangeError("embedding_lookup", f"partition_strategy is {strategy!r}; it must be 'mod' or 'div'")
    rows = sum(s.shape[0] for s in shards)
    size, more = divmod(rows, count)  # the first `more` shards have one row more
    edge = more * (size + 1)
    early = F.less(ids, edge)
    shard = F.where(early, F.floor_divide(ids, size + 1), F.floor_divide(ids - edge, max(size, 1)) + more)
    return shard, F.where(early, F.remainder(ids, size + 1), F.remainder(ids - edge, max(size, 1)))


def embedding_lookup(params, ids, partition_strategy: str = "mod", max_norm: float | None = None, sparse: bool = True):
    """Rows of a table that is one tensor or a list of shards. Only rows that are looked up are read, and only these have gradients.

    params: (V, D), or shards (V_i, D); ids: (*) of integers -> (*, D). partition_strategy: id k is row k // n of shard k % n
    ("mod"), or shards hold neighbouring ids ("div"). sparse: gradients of shards are sparse.

    >>> shards = [td.tensor([[0.0], [2.0]]), td.tensor([[1.0], [3.0]])]
    >>> td.nn.functional.embedding_lookup(shards, td.tensor([3, 0]))
    tensor([[3.],
            [0.]])
    """
    shards = list(params) if isinstance(params, (list, tuple)) else [params]
    if not shards or any(s.ndim < 1 or s.shape[1:] != shards[0].shape[1:] for s in shards):
        raise ShapeError("embedding_lookup", f"shards are {[tuple(s.shape) for s in shards]}; their rows must agree")
    if len(shards) > 1:
        ids = check_ids(ids, sum(s.shape[0] for s in shards))
    if any(isinstance(v, Value) for v in (*shards, ids)):
        return _lookup_everywhere(shards, ids, partition_strategy)
    find = sparse_embedding if sparse else rows_at
    if len(shards) == 1:
        _shorten(shards[0], ids, max_norm)
        return find(ids, shards[0])
    flat = F.reshape(F.astype(ids, dtypes.int64, copy=False), (-1,))
    shard, row = _shard_of(flat, shards, partition_strategy)
    places = rows_of_parts(shard, len(shards))
    found = []
    for table, place in zip(shards, places, strict=True):
        wanted = row[place]
        _shorten(table, wanted, max_norm)
        found.append(find(wanted, table))
    return F.reshape(dynamic_stitch(places, found), (*ids.shape, *shards[0].shape[1:]))


def _shorten(table, rows, max_norm):
    if max_norm is not None:
        renormalize_rows_(table, rows, max_norm)


def _lookup_everywhere(shards, ids, strategy: str):
    """The same where sizes must not depend on values: every shard is asked for all ids, and the right answer is taken."""
    if len(shards) == 1:
        return rows_at(ids, shards[0])
    if len({str(getattr(s, "device", None)) for s in shards}) > 1:
        return _lookup_in_parts(shards, ids, strategy)
    shard, row = _shard_of(F.astype(ids, dtypes.int64), shards, strategy)
    made = None
    for i, table in enumerate(shards):
        with _beside(table):
            here = F.equal(shard, i)
            rows = rows_at(F.where(here, row, 0), table)
            rows = F.where(F.reshape(here, (*here.shape, *(1,) * (table.ndim - 1))), rows, 0)
        made = rows if made is None else made + rows
    return made


def _lookup_in_parts(shards, ids, strategy: str):
    """The same where shards are on several devices or tasks: each is asked for its own ids, so that no row crosses in vain."""
    flat = F.reshape(F.astype(ids, dtypes.int64), (-1,))
    shard, row = _shard_of(flat, shards, strategy)
    places = rows_of_parts(shard, len(shards))
    found = []
    for table, place in zip(shards, places, strict=True):
        wanted = F.index_select(row, 0, place)
        with _beside(table):
            found.append(rows_at(wanted, table))
    return F.reshape(dynamic_stitch(places, found), (*ids.shape, *shards[0].shape[1:]))


def _beside(table):
    """The scope in which nodes are where a table of a deferred graph is: rows move then, and not the table."""
    graph = getattr(table.node, "graph", None)
    if graph is None or table.device is None:
        return contextlib.nullcontext()
    return graph.device(table.device)


def _logits(weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, remove_hits, subtract_log_q,
            strategy, sampler, seed, sparse):  # fmt: skip
    """Scores of true and sampled classes, (b, num_true + num_sampled)."""
    if labels.ndim == 1:
        labels = F.unsqueeze(labels, -1)
    if labels.ndim != 2 or labels.shape[1] != num_true or labels.shape[0] != inputs.shape[0]:
        raise ShapeError(
            "sampled_softmax_loss",
            f"labels are {tuple(labels.shape)} and inputs {tuple(inputs.shape)}; labels must be (batch, num_true={num_true})",
        )
    labels = F.astype(labels, dtypes.int64, copy=False)
    if sampled_values is None:
        generator = None if seed is None else Generator().manual_seed(seed)
        sampled_values = (sampler or LogUniformSampler(num_classes)).sample(labels, num_sampled, True, generator)
    sampled, true_expected, sampled_expected = sampled_values
    n = sampled.shape[0]
    every = F.concat([F.reshape(labels, (-1,)), sampled], 0)  # one lookup for both
    rows = embedding_lookup(weights, every, strategy, sparse=sparse)
    shift = embedding_lookup(biases, every, strategy, sparse=sparse)
    shift = F.reshape(shift, (-1,))
    count = labels.shape[0] * num_true
    own = F.reshape(rows[:count], (labels.shape[0], num_true, -1))
    true = F.sum(F.unsqueeze(inputs, 1) * own, -1) + F.reshape(shift[:count], labels.shape)
    other = F.matmul(inputs, F.transpose(rows[count:], 0, 1)) + shift[count:]
    if remove_hits:
        hit = F.any(F.equal(F.unsqueeze(labels, -1), F.reshape(sampled, (1, 1, n))), 1)
        other = F.where(hit, -1e37 if other.dtype is not dtypes.float16 else -6e4, other)
    if subtract_log_q:
        true = true - F.astype(F.log(true_expected), true.dtype)
        other = other - F.astype(F.log(sampled_expected), other.dtype)
    return F.concat([true, other], 1)


def sampled_softmax_loss(weights, biases, labels, inputs, num_sampled: int, num_classes: int, num_true: int = 1,
                         sampled_values=None, remove_accidental_hits: bool = True, seed=None, partition_strategy: str = "mod",
                         sampler=None, sparse: bool = True):  # fmt: skip
    """Cross-entropy over the true classes and a sample of the others, corrected for how they were drawn (Jean et al., 2015): an
    estimate of that over all classes, for training.

    weights: (classes, D), or shards of it; biases: (classes), or shards; labels: (batch, num_true); inputs: (batch, D) -> (batch).
    sampled_values: from a candidate sampler; sampler: one to draw from, log-uniform unless given.

    >>> w, b = td.zeros(1000, 4), td.zeros(1000)
    >>> td.nn.functional.sampled_softmax_loss(w, b, td.tensor([[5]]), td.ones(1, 4), 20, 1000).shape
    (1,)
    """
    logits = _logits(weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, remove_accidental_hits,
                     True, partition_strategy, sampler, seed, sparse)  # fmt: skip
    chosen = logits[:, :num_true]
    return F.logsumexp(logits, 1) - F.mean(chosen, 1)


def nce_loss(weights, biases, labels, inputs, num_sampled: int, num_classes: int, num_true: int = 1, sampled_values=None,
             remove_accidental_hits: bool = False, seed=None, partition_strategy: str = "mod", sampler=None,
             sparse: bool = True):  # fmt: skip
    """Noise-contrastive estimation (Gutmann and Hyvarinen, 2010): tells true classes from sampled ones by logistic regression.
    Parameters as of sampled_softmax_loss.

    >>> w, b = td.zeros(1000, 4), td.zeros(1000)
    >>> td.nn.functional.nce_loss(w, b, td.tensor([[5]]), td.ones(1, 4), 20, 1000).shape
    (1,)
    """
    logits = _logits(weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, remove_accidental_hits,
                     True, partition_strategy, sampler, seed, sparse)  # fmt: skip
    # -log sigmoid(x) for what is true, with weight 1 / num_true, and -log(1 - sigmoid(x)) = softplus(x) for the rest
    true, other = logits[:, :num_true], logits[:, num_true:]
    own = F.sum(F.softplus(true) - true / num_true, 1)
    return own + F.sum(F.softplus(other), 1)
