"""Elastic programs: a rank is killed, the others go on, another takes its place; the result is that of these ranks."""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist
from tandem.distributed import elastic, membership
from tandem.distributed.launcher import ElasticGang
from tandem.distributed.store import Service, Store

PROGRAM = """
import json, os, signal, time
import tandem as td
from tandem import distributed as dist
from tandem.distributed import elastic

dist.init_process_group(elastic=True)
model = td.nn.Linear(2, 1)
with td.no_grad():
    model.weight.copy_(td.tensor([[0.5, -0.25]]))
    model.bias.zero_()
dist.data_parallel(model)
optimizer = td.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
state = elastic.State(model=model, optimizer=optimizer, sizes=[])

def train(state):
    rank, n = dist.get_rank(), dist.get_world_size()
    end = time.monotonic() + 180
    while not (2 in state.sizes and state.sizes[-3:] == [3, 3, 3]) and time.monotonic() < end:
        step = len(state.sizes)
        if step == 4 and os.environ["TANDEM_MEMBER"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        x = td.full((4, 2), (rank + 1) / (step % 3 + 2))
        loss = ((state.model(x) - rank) ** 2).mean()
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        state.sizes = [*state.sizes, n]
        state.commit()
        time.sleep(0.01)
    return state.sizes

sizes = elastic.run(train, state)
weights = [p.reshape(-1).tolist() for p in model.parameters()]
every = [None] * dist.get_world_size()
dist.all_gather_object(every, {"member": os.environ["TANDEM_MEMBER"], "sizes": sizes, "weights": weights})
if dist.get_rank() == 0:
    print("RESULT", json.dumps(every))
dist.destroy_process_group()
"""


def alone(sizes):
    """The same steps in one process, with as many ranks as took part in each."""
    model = td.nn.Linear(2, 1)
    with td.no_grad():
        model.weight.copy_(td.tensor([[0.5, -0.25]]))
        model.bias.zero_()
    optimizer = td.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step, n in enumerate(sizes):
        optimizer.zero_grad()
        for rank in range(n):
            x = td.full((4, 2), (rank + 1) / (step % 3 + 2))
            (((model(x) - rank) ** 2).mean() / n).backward()
        optimizer.step()
    return [p.reshape(-1).tolist() for p in model.parameters()]


def start(program: str, tmp_path, *flags: str) -> subprocess.CompletedProcess:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(program))
    environment = {**os.environ, "TANDEM_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-m", "tandem", "run", *flags, str(path)], capture_output=True, text=True,
                          timeout=240, env=environment)  # fmt: skip


def test_a_killed_rank_is_left_behind_and_replaced(tmp_path):
    done = start(PROGRAM, tmp_path, "--elastic", "-n", "3", "--max-restarts", "1")
    assert done.returncode == 0, done.stderr
    every = json.loads(done.stdout.split("RESULT ")[1])
    sizes = every[0]["sizes"]
    assert ["1", "2", "3"] == [one["member"] for one in every]  # the first is gone, a new one is the last
    assert sizes[:5] == [3, 3, 3, 3, 2]
    assert sizes[-3:] == [3, 3, 3]
    assert all(one["sizes"] == sizes and one["weights"] == every[0]["weights"] for one in every)
    for expected, found in zip(alone(sizes), every[0]["weights"], strict=True):
        np.testing.assert_allclose(expected, found, rtol=1e-4, atol=1e-6)
    assert "rank 0 of 3 ended by SIGKILL; 2 go on" in done.stderr


def test_too_few_ranks_end_the_program(tmp_path):
    done = start(PROGRAM, tmp_path, "-n", "2:2")
    assert done.returncode == 137
    assert "rank 0 of 2 ended by SIGKILL; 1 are too few to go on" in done.stderr


def test_an_error_of_the_program_is_raised_as_it_is():
    dist.init_process_group(elastic=True)
    try:
        state = elastic.State(step=0)
        with pytest.raises(ZeroDivisionError):
            elastic.run(lambda state: 1 // state.step, state)
        with pytest.raises(AttributeError, match="State has no 'steps'; it was made of step"):
            state.steps = 1
    finally:
        dist.destroy_process_group()


def test_a_state_goes_back_to_a_commit():
    dist.init_process_group(elastic=True)
    try:
        model = td.nn.Linear(2, 1)
        state = elastic.State(model=model, step=0, history=[])
        before = model.weight.tolist()
        state.commit()
        with td.no_grad():
            model.weight.zero_()
        state.step, state.history = 3, [1]
        state._restore(1)
        assert (state.step, state.history, model.weight.tolist()) == (0, [], before)
    finally:
        dist.destroy_process_group()


def test_nobody_waits_for_a_process_that_died_before_it_was_asked_for(monkeypatch):
    for name, value in {"TANDEM_MEMBER": "0", "RANK": "0", "WORLD_SIZE": "1"}.items():  # which a place sets
        monkeypatch.setenv(name, value)
    service = Service()
    gang = object.__new__(ElasticGang)
    gang.service, gang.members, gang.generation = service, [], -1
    try:
        store = Store(service.address, timeout=300.0)
        gang.publish(["0", "1"], "the program begins")
        gang.publish(["0", "1", "2"], "process 2 joins")
        place = membership.place_in(store, membership.latest(store))
        assert (place.rank, place.size, place.epoch) == (0, 3, 0)
        gang.publish(["0", "2"], "process 1 ended by SIGKILL")
        with pytest.raises(td.DistributedError, match="process 1 ended by SIGKILL"):
            place.engine(store)
        later = membership.place_in(store, membership.latest(store))
        assert (later.rank, later.size, later.epoch) == (0, 2, 1)
    finally:
        service.close()
