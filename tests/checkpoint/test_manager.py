"""Checkpoints of whole runs: bit-exact resume, keeping the last ones, damaged ones, saving in the background."""

import os
import random

import numpy as np
import pytest

import tandem as td
from tandem import _runtime


class Noisy(td.data.Dataset):
    """Samples that use all three generators, as augmentations do."""

    def __init__(self):
        self.x = td.randn(40, 5, generator=td.Generator(1))

    def __len__(self):
        return 40

    def __getitem__(self, i):
        return self.x[i] + td.rand(5) * 0.1 + random.random() * 0.01, np.float32(np.random.rand())


class Run:
    """A training run in which everything that has state takes part."""

    def __init__(self, seed: int):
        td.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.model = td.nn.Sequential(
            td.nn.Linear(5, 8), td.nn.BatchNorm1d(8), td.nn.ReLU(), td.nn.Dropout(0.3), td.nn.Linear(8, 1)
        )
        self.optimizer = td.optim.AdamW(self.model.parameters(), lr=0.01)
        self.schedule = td.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 30)
        self.loader = td.data.DataLoader(Noisy(), batch_size=6, shuffle=True)
        self.objects = {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "loader": self.loader,
        }
        self.step = 0

    def train(self, steps: int, manager=None, save_at: int | None = None) -> list[bytes]:
        losses = []
        while len(losses) < steps:
            for x, y in self.loader:
                loss = ((self.model(x)[:, 0] - y) ** 2).mean() * (1 + random.random() + np.random.rand())
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.schedule.step()
                self.step += 1
                losses.append(_runtime.to_bytes(loss.detach()))
                if self.step == save_at:
                    manager.save(self.step, extra={"best": 0.5})
                if len(losses) == steps:
                    break
        return losses

    def weights(self) -> list[bytes]:
        return [_runtime.to_bytes(t) for t in self.model.state_dict().values()]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_resumed_run_is_bit_for_bit_the_run_that_was_not_interrupted(tmp_path, asynchronous):
    run = Run(0)
    manager = td.checkpoint.CheckpointManager(tmp_path, asynchronous=asynchronous, **run.objects)
    expected = run.train(21, manager, save_at=9)[9:]
    manager.wait()

    other = Run(1)
    other.train(2)
    manager = td.checkpoint.CheckpointManager(tmp_path, **other.objects)
    assert 9 == manager.restore()
    assert {"best": 0.5} == manager.extra
    assert expected == other.train(12)
    assert run.weights() == other.weights()


def test_the_last_ones_are_kept(tmp_path):
    manager = td.checkpoint.CheckpointManager(tmp_path, keep=2, keep_every=4, model=td.nn.Linear(1, 1))
    for step in range(1, 8):
        manager.save(step)
    assert [4, 6, 7] == manager.steps()
    assert 7 == manager.latest()
    manager.delete(7)
    assert 6 == manager.restore()


def test_old_sharded_checkpoints_go_with_their_shards(tmp_path):
    model = td.nn.Linear(100, 10)
    manager = td.checkpoint.CheckpointManager(tmp_path, keep=1, max_shard_size=1000, model=model)
    manager.save(1)
    manager.save(2)
    assert [2] == manager.steps()
    assert all("00000002" in name for name in os.listdir(tmp_path))
    assert 2 == manager.restore()


def test_nothing_saved_yet(tmp_path):
    assert td.checkpoint.CheckpointManager(tmp_path / "new", model=td.nn.Linear(1, 1)).restore() is None


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(tmp_path):
    model = td.nn.Linear(2, 2)
    manager = td.checkpoint.CheckpointManager(tmp_path, model=model)
    manager.save(1)
    before = model.weight.tolist()
    with td.no_grad():
        model.weight.add_(1)
    manager.save(2)
    data = bytearray((tmp_path / "step-00000002.safetensors").read_bytes())
    data[-3] ^= 4
    (tmp_path / "step-00000002.safetensors").write_bytes(data)
    with pytest.warns(UserWarning, match="step 2 is passed over"):
        assert 1 == manager.restore()
    assert before == model.weight.tolist()
    with pytest.raises(td.CheckpointError, match="checksum"):
        manager.restore(step=2)
    manager.delete(1)
    with (
        pytest.warns(UserWarning, match="passed over"),
        pytest.raises(td.CheckpointError, match="none of the checkpoints"),
    ):
        manager.restore()


def test_steps_that_are_not_there(tmp_path):
    manager = td.checkpoint.CheckpointManager(tmp_path, model=td.nn.Linear(1, 1))
    manager.save(3)
    with pytest.raises(td.CheckpointError, match=r"has no step 4; it has \[3\]"):
        manager.restore(step=4)


def test_an_error_in_the_background_comes_with_the_next_call(tmp_path):
    manager = td.checkpoint.CheckpointManager(tmp_path / "run", asynchronous=True, w=td.zeros(3))
    os.rmdir(tmp_path / "run")
    manager.save(1)
    with pytest.raises(FileNotFoundError):
        manager.save(2)
    os.mkdir(tmp_path / "run")
    manager.save(2)
    manager.close()
    assert [2] == manager.steps()


def test_objects_are_checked(tmp_path):
    with pytest.raises(TypeError, match="lr is a float, which has no state_dict"):
        td.checkpoint.Checkpoint(lr=0.1)
    td.checkpoint.Checkpoint(a=td.zeros(1)).save(tmp_path / "a")
    with pytest.raises(td.CheckpointError, match="lacks b; it has 'a'"):
        td.checkpoint.Checkpoint(b=td.zeros(1)).restore(tmp_path / "a")
    td.save(td.zeros(1), tmp_path / "b")
    with pytest.raises(td.CheckpointError, match="lacks"):
        td.checkpoint.Checkpoint(b=td.zeros(1)).restore(tmp_path / "b")


def test_tensors_and_generators_are_restored_in_place(tmp_path):
    w, generator = td.ones(2), td.Generator(5)
    checkpoint = td.checkpoint.Checkpoint(w=w, generator=generator)
    checkpoint.save(tmp_path / "a", step=1)
    first = td.rand(3, generator=generator).tolist()
    w.zero_()
    assert 1 == checkpoint.restore(tmp_path / "a")
    assert [1.0, 1.0] == w.tolist()
    assert first == td.rand(3, generator=generator).tolist()
