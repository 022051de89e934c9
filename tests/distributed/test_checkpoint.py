"""Checkpoints of many ranks: what some write, any other number of ranks reads."""

import json
import os

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist
from tandem.distributed import checkpoint


def on_ranks(n, fn, *args):
    return dist.spawn(fn, n, args, engine="threads", timeout=60)


def make(seed):
    td.manual_seed(seed)
    return td.nn.Sequential(td.nn.Linear(3, 5), td.nn.BatchNorm1d(5), td.nn.Linear(5, 1))


def step(model, optimizer):
    optimizer.zero_grad()
    (model(td.arange(12).reshape(4, 3).to(td.float32) / 7) ** 2).mean().backward()
    optimizer.step()


def whole_state(model, optimizer):
    """Everything, gathered: weights, and both moments of Adam."""
    state = {k: v.tolist() for k, v in dist.full_state_dict(model).items()}
    for name, p in model.named_parameters():
        for key, value in optimizer.state[p].items():
            if isinstance(value, td.Tensor):
                divided = getattr(p, "division", None)
                state[name, key] = (divided.whole(value) if divided and value.shape == p.shape else value).tolist()
            else:
                state[name, key] = value
    return state


def prepared(seed):
    model = make(seed)
    for layer in (model[0], model[2]):
        dist.fully_shard(layer)
    return model, td.optim.Adam(model.parameters(), lr=0.1)


def write(folder):
    model, optimizer = prepared(0)
    step(model, optimizer)
    checkpoint.save(folder, model, optimizer, extra={"epoch": 3})
    return whole_state(model, optimizer)


def read(folder):
    model, optimizer = prepared(1)
    extra = checkpoint.load(folder, model, optimizer)
    before = whole_state(model, optimizer)
    step(model, optimizer)  # training goes on
    return before, extra


@pytest.mark.parametrize("writers", [1, 2, 3, 4])
def test_any_number_of_ranks_reads_what_any_other_wrote(tmp_path, writers):
    folder = str(tmp_path / "run")
    written = on_ranks(writers, write, folder)[0]
    for readers in (1, 2, 3, 4):
        for state, extra in on_ranks(readers, read, folder):
            assert extra == {"epoch": 3}
            assert state.keys() == written.keys()
            for key, value in written.items():
                np.testing.assert_array_equal(value, state[key], err_msg=str(key))


def test_a_single_process_without_a_group_reads_whole_tensors(tmp_path):
    folder = str(tmp_path / "run")
    written = on_ranks(3, write, folder)[0]
    model = make(1)
    checkpoint.load(folder, model)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(written[name], value.tolist())


def test_a_save_replaces_the_one_before_as_a_whole(tmp_path):
    folder = str(tmp_path / "run")
    on_ranks(2, write, folder)
    os.makedirs(tmp_path / "run" / "save-cutshort")  # of a save that never came to its end
    on_ranks(2, write, folder)
    with open(tmp_path / "run" / "index.json") as file:
        named = json.load(file)["folder"]
    assert sorted(os.listdir(folder)) == ["index.json", named]


def test_mistakes(tmp_path):
    with pytest.raises(td.CheckpointError, match="is no checkpoint"):
        checkpoint.load(str(tmp_path), make(0))
    on_ranks(1, write, str(tmp_path))
    with pytest.raises(td.CheckpointError, match=r"model/weight is not in"):
        checkpoint.load(str(tmp_path), td.nn.Linear(2, 2))
