"""What is measured per machine: who computes products, how that is kept, and that both ways give the same numbers."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import tandem as td
from tandem import _runtime
from tandem.machine import tune

SHAPES = {  # kind: batch, rows, columns, inner size, which operands are transposed
    "batched": (4, 256, 64, 256, "tn"),
    "transposed": (1, 300, 128, 200, "tn"),
    "few_rows": (1, 64, 400, 300, "nt"),
    "wide": (1, 400, 1100, 100, "nt"),
    "colliding": (1, 400, 512, 130, "nn"),
    "large": (1, 1000, 400, 260, "nn"),
    "tall": (1, 4100, 70, 90, "nn"),
    "other": (1, 600, 130, 140, "nn"),
}


def strides(rows, columns, order):
    return (1, rows) if order == "t" else (columns, 1)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A machine on which nothing was measured, and whose library goes back to what it was."""
    monkeypatch.setattr(tune, "_known", {})
    monkeypatch.setattr(tune, "_measured", set())
    monkeypatch.setattr(tune, "_spent", 0.0)
    before = [_runtime.prefers_own_products(i) for i in range(len(tune.KINDS))]
    with td.switches(CACHE_DIR=str(tmp_path), CACHE=1):
        yield tmp_path
    for i, own in enumerate(before):
        _runtime.prefer_products(i, own, at_once=True)


@pytest.mark.parametrize("isa", ["", "avx2"])
@pytest.mark.parametrize("kind", SHAPES)
def test_both_ways_compute_every_kind(kind, isa, here):
    batch, m, n, k, order = SHAPES[kind]
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (batch, m, k) if order[0] == "n" else (batch, k, m)).astype(np.float32)
    b = rng.integers(-4, 5, (batch, k, n) if order[1] == "n" else (batch, n, k)).astype(np.float32)
    a = a if order[0] == "n" else a.transpose(0, 2, 1)
    b = b if order[1] == "n" else b.transpose(0, 2, 1)
    number = _runtime.product_kind(batch, m, n, k, strides(m, k, order[0]), strides(k, n, order[1]))
    assert tune.KINDS[number] == kind
    with td.switches(ISA=isa):
        for own in (1, 0):
            assert _runtime.prefer_products(number, own, at_once=True)
            assert _runtime.prefers_own_products(number) == bool(own)
            c = np.full((batch, m, n), 7, np.float32)
            _runtime.library_call("matmul", [a, b], [c])
            np.testing.assert_array_equal(c, a @ b)
        _runtime.prefer_products(number, -1, at_once=True)


def prepare(kind="few_rows"):
    batch, m, n, k, order = SHAPES[kind]
    tune.prepare_products(batch, m, n, k, strides(m, k, order[0]), strides(k, n, order[1]))


@pytest.fixture
def clock(here, monkeypatch):
    """What runs of a typical product take, as a list of pairs of lists for measurements to come."""
    to_come = []
    monkeypatch.setattr(_runtime, "time_products", lambda kind, runs: to_come.pop(0))
    monkeypatch.setattr(tune, "_suggests_own", lambda number: True)
    return to_come


def another_process(monkeypatch):
    monkeypatch.setattr(tune, "_known", {})
    monkeypatch.setattr(tune, "_measured", set())


QUIET_OWN = [1.0, 1.01, 1.02], [2.0, 2.02, 5.0]
QUIET_ONEDNN = [2.0, 2.01, 2.02], [1.0, 1.02, 1.1]
NOISY_OWN = [3.0, 4.0, 9.0], [4.0, 7.0, 8.0]  # by chance: oneDNN is quicker, as quiet measurements show


def test_a_process_measures_a_kind_once(clock):
    clock.append(QUIET_OWN)
    prepare()
    prepare()
    tune.prepare_products(1, 8, 8, 8, (8, 1), (8, 1))  # too small to be worth it
    assert not clock and ["few_rows"] == list(tune.load())


def test_two_quiet_measurements_settle_a_kind(clock, monkeypatch):
    clock += [QUIET_OWN, QUIET_OWN]
    for _ in range(4):
        prepare()
        another_process(monkeypatch)
    assert not clock
    assert tune.Finding(1.0, 2.0, tune.SETTLED) == tune.load()["few_rows"]


def test_what_was_measured_on_a_busy_machine_is_not_kept_for_ever(clock, monkeypatch):
    clock += [NOISY_OWN, QUIET_ONEDNN, QUIET_ONEDNN]
    chosen = []
    for _ in range(4):
        prepare()
        chosen.append(tune.prefers_own("few_rows", tune.load()["few_rows"]))
        another_process(monkeypatch)
    assert not clock and [True, False, False, False] == chosen


def test_a_machine_that_is_always_busy_is_measured_four_times(clock, monkeypatch):
    clock += [NOISY_OWN] * 4
    for _ in range(6):
        prepare()
        another_process(monkeypatch)
    assert not clock


def test_tuning_goes_on_while_it_is_disturbed(clock):
    settled = [(QUIET_OWN, QUIET_OWN)] * (len(tune.KINDS) - 2)
    clock += [NOISY_OWN, NOISY_OWN, QUIET_ONEDNN] + [times for pair in settled for times in pair]
    found = tune.tune()
    assert not clock and (False, 2.0, 1.0) == found["batched"]
    assert all(f.trust >= tune.SETTLED for f in tune.load().values())


def test_what_tuning_does_not_settle_is_measured_again(clock, monkeypatch):
    clock += [NOISY_OWN] * 8 * (len(tune.KINDS) - 1) + [QUIET_ONEDNN]
    tune.tune()
    another_process(monkeypatch)
    prepare()
    assert not clock and not tune.prefers_own("few_rows", tune.load()["few_rows"])


def test_measuring_ends_with_its_budget(clock, monkeypatch):
    monkeypatch.setattr(tune, "_spent", tune.BUDGET)
    prepare()  # nothing is to come


def test_a_damaged_file_is_measured_anew(clock, monkeypatch):
    clock += [QUIET_OWN, QUIET_ONEDNN]
    prepare()
    file = pathlib.Path(tune._path())
    file.write_bytes(file.read_bytes().replace(b"few_rows", b"few_cows"))
    another_process(monkeypatch)
    prepare()
    assert not clock and tune.Finding(2.0, 1.0, 2) == tune.load()["few_rows"]


def test_times_of_every_run_are_given():
    own, onednn = _runtime.time_products(tune.KINDS.index("few_rows"), 2)
    assert 2 == len(own) == len(onednn) and min(own + onednn) > 0


def test_what_was_used_keeps_its_way_while_the_process_lives():
    script = """
import numpy as np
from tandem import _runtime
from tandem.machine import tune
kind = tune.KINDS.index("few_rows")
suggested = _runtime.suggests_own_products(kind)
assert _runtime.prefer_products(kind, not suggested)       # not used yet
assert _runtime.prefers_own_products(kind) != suggested    # now it is
assert not _runtime.prefer_products(kind, suggested)
assert _runtime.prefers_own_products(kind) != suggested
assert _runtime.prefer_products(kind, -1, at_once=True)
assert _runtime.prefers_own_products(kind) == suggested
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_quicker_way_is_preferred_but_for_a_margin(monkeypatch):
    for suggested, ratio, expected in [
        (True, 1.05, True),
        (True, 1.2, False),
        (False, 0.95, False),
        (False, 0.8, True),
    ]:
        monkeypatch.setattr(tune, "_suggests_own", lambda n, s=suggested: s)
        assert expected == tune.prefers_own("few_rows", tune.Finding(ratio, 1.0, 1))


KEPT = """
import sys
import tandem as td
from tandem import _runtime
from tandem.machine import tune

tune.BUDGET = float(sys.argv[1])
x, w = td.ones(4, 32, 24, 24), td.ones(32, 32, 3, 3)
td.conv2d(x, w, padding=1)
print(len(_runtime.convolutions_found()) if len(sys.argv) > 2 else "", end="")
"""


def test_ways_of_convolutions_are_measured_and_kept(tmp_path):
    """A process measures a convolution that it meets, the next one knows of it, and none is measured without time for it."""

    def kept():
        (file,) = (tmp_path / "machine").glob("*.convolutions")
        content = file.read_bytes()
        assert content.startswith(tune.CONVOLUTIONS) or tune.CONVOLUTIONS in content
        path = str(file).removesuffix(".convolutions")
        with td.switches(CACHE_DIR=str(tmp_path), CACHE=1):
            return tune._read_convolutions(path)

    def run(*arguments):
        environment = {**os.environ, "TANDEM_CACHE_DIR": str(tmp_path), "TANDEM_CACHE": "1"}
        command = [sys.executable, "-c", KEPT, *arguments]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    assert run("0", "tell") == "0"
    run("0.25")
    (first,) = kept().values()
    assert first[1] >= 1 and sum(s > 0 for s in first[0]) >= 2
    run("0.25")
    (second,) = kept().values()
    assert second[1] > first[1] or first[1] >= tune.SETTLED
    assert all(b <= a for a, b in zip(first[0], second[0]) if a > 0)


WAITING = """
import sys
import tandem as td
from tandem.machine import tune

tune.FIRST_STEPS, tune.AT_EXIT = 1e-9, float(sys.argv[1])
x = td.ones(4, 32, 24, 24)
td.conv2d(x, td.ones(32, 32, 3, 3), padding=1)
td.conv2d(x, td.ones(48, 32, 3, 3), padding=1)
"""


@pytest.mark.parametrize("share, count", [(0, 1), (1, 2)])
def test_what_first_steps_have_no_time_for_is_measured_at_the_end(tmp_path, share, count):
    environment = {**os.environ, "TANDEM_CACHE_DIR": str(tmp_path), "TANDEM_CACHE": "1"}
    subprocess.run([sys.executable, "-c", WAITING, str(share)], env=environment, check=True)
    (file,) = (tmp_path / "machine").glob("*.convolutions")
    with td.switches(CACHE_DIR=str(tmp_path), CACHE=1):
        assert len(tune._read_convolutions(str(file).removesuffix(".convolutions"))) == count
