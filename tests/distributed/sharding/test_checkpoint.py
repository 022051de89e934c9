"""Checkpoints of sharded tensors: what one mesh writes, any other mesh or a single process reads."""

import json

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist
from tandem.distributed import checkpoint
from tests.distributed.sharding.ranks import R, S, on_mesh, sharded

X = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
WAYS = {(1,): ((S(0),), (R,)), (2,): ((S(0),), (R,)), (3,): ((S(1),), (R,)), (2, 2): ((S(0), S(1)), (S(0), R))}


def prepared(mesh, seed):
    """A model whose weight and bias lie on the mesh in two ways."""
    td.manual_seed(seed)
    model = td.nn.Linear(5, 3)
    for name, placements in zip(("weight", "bias"), WAYS[mesh.shape], strict=True):
        p = getattr(model, name)
        placements = [R if q.is_shard() and q.dim >= p.ndim else q for q in placements]
        setattr(model, name, td.nn.Parameter(dist.distribute_tensor(p.detach(), mesh, placements)))
    return model, td.optim.Adam(model.parameters(), lr=0.1)


def step(mesh, model, optimizer):
    (model(sharded(X, mesh, [R] * mesh.ndim)) ** 2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def whole(model, optimizer):
    made = [p.detach().numpy().copy() for p in model.parameters()]
    return made + [
        optimizer.state[p][k].numpy().copy() for p in model.parameters() for k in ("exp_avg", "exp_avg_sq", "step")
    ]


def test_any_mesh_reads_what_any_other_wrote(tmp_path):
    def write(mesh):
        model, optimizer = prepared(mesh, 0)
        step(mesh, model, optimizer)
        checkpoint.save(str(tmp_path), model, optimizer, extra={"epoch": 1})
        return whole(model, optimizer)

    def read(mesh):
        model, optimizer = prepared(mesh, 1)
        assert {"epoch": 1} == checkpoint.load(str(tmp_path), model, optimizer)
        made = whole(model, optimizer)
        step(mesh, model, optimizer)  # training goes on
        return made

    for old in WAYS:
        expected = on_mesh(old, write)[0]
        for new in WAYS:
            for made in on_mesh(new, read):
                for a, b in zip(made, expected, strict=True):
                    np.testing.assert_array_equal(a, b)
        plain = td.nn.Linear(5, 3)
        checkpoint.load(str(tmp_path), plain)
        np.testing.assert_array_equal(plain.weight.detach().numpy(), expected[0])


def test_an_index_with_rows_is_still_read(tmp_path):
    def write(mesh):
        model = td.nn.Linear(5, 3)
        checkpoint.save(str(tmp_path), dist.fully_shard(model))
        return dist.full_state_dict(model)["weight"].numpy()

    expected = on_mesh((2,), write)[0]
    path = tmp_path / "index.json"
    index = json.loads(path.read_text())
    index["version"] = 1
    for entry in index["tensors"].values():
        entry["parts"] = [[rank, start[0], start[0] + shape[0]] for rank, start, shape in entry["parts"]]
    path.write_text(json.dumps(index))
    plain = td.nn.Linear(5, 3)
    checkpoint.load(str(tmp_path), plain)
    np.testing.assert_array_equal(plain.weight.detach().numpy(), expected)


def test_a_partial_tensor_is_not_written(tmp_path):
    def work(mesh):
        model = td.nn.Linear(2, 2)
        model.weight = td.nn.Parameter(sharded(np.ones((2, 2), np.float32), mesh, [dist.Partial()]))
        checkpoint.save(str(tmp_path), model)

    with pytest.raises(td.CheckpointError, match="redistribute it first"):
        on_mesh((2,), work)
