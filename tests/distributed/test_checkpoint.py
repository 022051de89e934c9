"""Checkpoints of many ranks: what some write, any other number of ranks reads."""

import json
import os

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist
from tandem.distributed import checkpoint
from tests.processes import open_files


def on_ranks(n, fn, *args):
    return dist.spawn(fn, n, args, engine="threads", timeout=300)


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
    assert open_files(folder) == []


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


# -- in the background, and going on exactly


def write_in_background(folder):
    model, optimizer = prepared(0)
    step(model, optimizer)
    state = whole_state(model, optimizer)
    save = checkpoint.async_save(folder, model, optimizer, extra={"epoch": 3})
    for _ in range(3):  # training goes on, with collectives of its own
        step(model, optimizer)
    assert save.wait() and save.done()
    return state


def test_what_is_written_in_the_background_is_what_was_there_at_the_call(tmp_path):
    folder = str(tmp_path / "run")
    written = on_ranks(2, write_in_background, folder)[0]
    for state, extra in on_ranks(3, read, folder):
        assert extra == {"epoch": 3}
        for key, value in written.items():
            np.testing.assert_array_equal(value, state[key], err_msg=str(key))


def test_a_rank_that_cannot_write_is_named_and_the_checkpoint_before_stays(tmp_path, monkeypatch):
    folder = str(tmp_path / "run")
    written = on_ranks(2, write, folder)[0]
    real = checkpoint.save_file

    def full_disk(tensors, path):
        if path.endswith("rank-00001.safetensors"):
            raise OSError("no space left on device")
        real(tensors, path)

    def work():
        model, optimizer = prepared(1)
        step(model, optimizer)
        save = checkpoint.async_save(folder, model, optimizer)
        with pytest.raises((td.CheckpointError, OSError), match="no space left on device"):
            save.wait()
        checkpoint._latest.clear()

    monkeypatch.setattr(checkpoint, "save_file", full_disk)
    on_ranks(2, work)
    monkeypatch.undo()
    state, _ = on_ranks(1, read, folder)[0]
    for key, value in written.items():
        np.testing.assert_array_equal(value, state[key], err_msg=str(key))


def loader_of(rank, size):
    sampler = td.data.DistributedSampler(range(24), size, rank, seed=5, pad=False)
    return td.data.DataLoader(td.arange(24), batch_size=2, sampler=sampler)


def trained(folder, steps, resume, save_after):
    """Samples seen and the weights after some steps with dropout; all from a checkpoint, or from the beginning."""
    rank, size = dist.get_rank(), dist.get_world_size()
    td.manual_seed(100 + rank)
    model = dist.data_parallel(td.nn.Sequential(td.nn.Linear(1, 4), td.nn.Dropout(0.5), td.nn.Linear(4, 1)))
    optimizer, loader = td.optim.Adam(model.parameters(), lr=0.1), loader_of(rank, size)
    if resume:
        checkpoint.load(folder, model, optimizer, loader=loader, random=True)
    seen = []
    for batch in loader:
        seen += batch.tolist()
        model(batch.reshape(-1, 1).to(td.float32) / 24).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        steps -= 1
        if save_after == steps:
            checkpoint.save(folder, model, optimizer, loader=loader)
        if steps == 0:
            break
    return seen, [p.tolist() for p in model.parameters()]


def test_resuming_is_exact_in_samples_random_numbers_and_weights(tmp_path):
    folder = str(tmp_path / "run")
    whole = on_ranks(2, trained, folder, 6, False, 3)  # saves after three of six
    rest = on_ranks(2, trained, folder, 3, True, None)
    for (all_seen, weights), (seen, again) in zip(whole, rest, strict=True):
        assert all_seen[6:] == seen and weights == again


@pytest.mark.parametrize("readers", [1, 3, 4])
def test_another_number_of_ranks_uses_each_sample_of_the_epoch_once(tmp_path, readers):
    folder = str(tmp_path / "run")
    before = on_ranks(2, trained, folder, 3, False, 0)
    middle = on_ranks(readers, trained, folder, 1, True, 0)  # and saves again, in the same epoch
    after = on_ranks(2, trained, folder, 100, True, None)
    seen = [s for ranks in (before, middle, after) for samples, _ in ranks for s in samples]
    assert sorted(seen) == list(range(24))


def test_a_loader_that_cannot_divide_the_rest_says_so(tmp_path):
    folder = str(tmp_path / "run")
    on_ranks(2, trained, folder, 2, False, 0)
    model = td.nn.Sequential(td.nn.Linear(1, 4), td.nn.Dropout(0.5), td.nn.Linear(4, 1))
    with pytest.raises(
        td.CheckpointError, match=r"2 ranks saved their loaders and 1 read them(?s:.)*DistributedSampler"
    ):
        checkpoint.load(folder, model, loader=td.data.DataLoader(td.arange(24), batch_size=2))
