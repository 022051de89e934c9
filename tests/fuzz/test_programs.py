import pathlib
import subprocess
import sys

import numpy as np
import pytest

import tandem as td
from tests.check import check_gradients
from tests.fuzz import four_ways, machines
from tests.fuzz.programs import loss_of, make_examples, make_leaves, run, run_examples

KEPT = [
    line.split()
    for line in (pathlib.Path(__file__).parent / "seeds.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize("seed", range(25))
def test_compiled_is_eager(seed):
    eager_loss, eager_grads = run(seed, make_leaves(seed))
    loss, grads = td.compile(run)(seed, make_leaves(seed))
    np.testing.assert_allclose(float(loss), float(eager_loss), rtol=1e-12)
    for a, b in zip(grads, eager_grads, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-12)


def check_autobatch(seed):
    losses, grads = run_examples(seed, make_examples(seed))
    with td.autobatch():
        batched, batched_grads = run_examples(seed, make_examples(seed))
    for a, b in zip((*batched, *batched_grads), (*losses, *grads), strict=True):
        np.testing.assert_allclose(
            a.detach().numpy(), b.detach().numpy(), rtol=1e-8, atol=1e-11, err_msg=f"seed {seed}"
        )


@pytest.mark.parametrize("seed", [*range(6), 10_017, 10_031])  # the last two found something
def test_autobatch_is_eager(seed):
    check_autobatch(seed)


@pytest.fixture
def cells_at_once():
    """Every cell is compiled when it is first seen, so that its calls are known when they come again."""
    before = td._runtime.set_cells_worth_compiling(1)
    yield
    td._runtime.set_cells_worth_compiling(before)


@pytest.mark.parametrize("seed", [2, 3])
def test_autobatch_with_cells_is_eager(seed, cells_at_once):
    for _ in range(3):
        check_autobatch(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(20_000, 20_060, 20))
def test_autobatch_with_cells_is_eager_for_more_programs(first, cells_at_once):
    for seed in range(first, first + 20):
        for _ in range(3):
            check_autobatch(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 10_500, 50))
def test_autobatch_is_eager_for_more_programs(first):
    for seed in range(first, first + 50):
        check_autobatch(seed)


@pytest.mark.parametrize("seed", range(10))
def test_gradients_are_finite_differences(seed):
    arrays = tuple(leaf.detach().numpy() for leaf in make_leaves(seed))

    check_gradients(lambda *tensors: loss_of(seed, tensors), arrays)


@pytest.mark.parametrize("first", range(0, 40, 5))
def test_eager_compiled_session_and_numpy_agree(first):
    for seed in range(first, first + 5):
        four_ways.compare(seed)


@pytest.mark.parametrize(("kind", "seed"), KEPT)
def test_seeds_that_found_something(kind, seed):
    {"programs": four_ways.compare, "machines": machines.compare}[kind](int(seed))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 12_000, 200))
def test_more_programs_agree(first):
    for seed in range(first, first + 200):
        four_ways.compare(seed)


def test_programs_do_all_there_is():
    """A fuzzer that stops choosing something would find nothing there."""
    chosen = {step.name for seed in range(2000) for step in four_ways.Program(seed).steps}
    assert chosen == set(four_ways.RUN)


def test_the_command_tells_which_seeds_fail(tmp_path, monkeypatch):
    """A value that is wrong in one way is found, and so is a process that ends."""
    monkeypatch.setitem(four_ways.RUN, "tanh", lambda xp, x: xp.tanh(x) + (xp is four_ways._Tandem) * 0.1)
    seed = next(s for s in range(1000) if any(step.name == "tanh" for step in four_ways.Program(s).steps))
    with pytest.raises(AssertionError, match=rf"eager, value \d+ of seed {seed}: "):
        four_ways.compare(seed)
    command = [sys.executable, "-m", "tests.fuzz.run", "programs", "--count", "2", "--seed", "3", "--jobs", "1"]
    done = subprocess.run(
        [*command, "--failed", str(tmp_path / "failed.txt")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "done: 0 failed" in done.stdout
