"""What is measured per machine: who computes products, how that is kept, and that both ways give the same numbers."""

import os
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
    """A machine on which nothing was chosen. What this process has used stays chosen, so every test has kinds of its own."""
    monkeypatch.setattr(tune, "_spent", 0.0)
    with td.switches(CACHE_DIR=str(tmp_path), CACHE=1):
        yield tmp_path
    tune.open_choices()


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
            _runtime.force_products(number, bool(own))
            assert _runtime.prefers_own_products(number) == bool(own)
            c = np.full((batch, m, n), 7, np.float32)
            _runtime.library_call("matmul", [a, b], [c])
            np.testing.assert_array_equal(c, a @ b)
        _runtime.force_products(number, None)


def test_times_of_every_run_are_given():
    own, onednn = _runtime.time_products(tune.KINDS.index("few_rows"), 2)
    assert 2 == len(own) == len(onednn) and min(own + onednn) > 0


CHOOSES = """
import sys
import tandem as td
from tandem import _runtime
from tandem.machine import tune

own, onednn = ([float(t) for t in text.split(",")] for text in sys.argv[1:3])
calls = []
_runtime.time_products = lambda kind, runs: calls.append(kind) or (own, onednn)
tune._suggests_own = lambda number: True
if len(sys.argv) > 3:
    exec(sys.argv[3])
else:
    for _ in range(2):
        tune.prepare_products(1, 64, 400, 300, (300, 1), (1, 300))
    tune.prepare_products(1, 8, 8, 8, (8, 1), (8, 1))  # too small to be worth it
print(len(calls), _runtime.prefers_own_products(tune.KINDS.index("few_rows")))
"""
OWN, ONEDNN, NOISY_ONEDNN, NOISY_BUT_CLEAR = (
    ("1,1.01,1.02", "2,2.02,5"),
    ("2,2.01,2.02", "1,1.02,1.1"),
    ("4,7,8", "3,4,9"),
    ("8,9,20", "3,4,9"),
)


def process(folder, *arguments) -> str:
    environment = {**os.environ, "TANDEM_CACHE_DIR": str(folder), "TANDEM_CACHE": "1" if folder else "0"}
    command = [sys.executable, "-c", CHOOSES, *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def test_what_the_first_process_measured_stays(tmp_path):
    assert "1 False" == process(tmp_path, *ONEDNN)
    assert "0 False" == process(tmp_path, *OWN)


def test_without_a_cache_folder_every_process_chooses():
    assert "1 False" == process("", *ONEDNN)
    assert "1 True" == process("", *OWN)


@pytest.mark.parametrize("times, expected", [(NOISY_ONEDNN, "1 True"), (NOISY_BUT_CLEAR, "1 False")])
def test_on_a_busy_machine_only_a_much_quicker_way_is_chosen(tmp_path, times, expected):
    assert expected == process(tmp_path, *times)


def test_what_was_used_unmeasured_stays_as_suggested(tmp_path):
    """Also for processes that would have the time to measure it: results do not change from run to run."""
    suggested = process(tmp_path, *OWN, "tune.open_choices()")
    assert suggested.startswith("0 ")
    assert suggested == process(tmp_path, *(ONEDNN if suggested.endswith("True") else OWN))


def test_tuning_chooses_again(tmp_path):
    process(tmp_path, *OWN)
    kinds = len(tune.KINDS) - 1
    assert f"{kinds} False" == process(tmp_path, *ONEDNN, "tune.tune()")
    assert "0 False" == process(tmp_path, *OWN)


def test_tuning_goes_on_while_it_is_disturbed(tmp_path):
    assert f"{8 * (len(tune.KINDS) - 1)} True" == process(tmp_path, *NOISY_ONEDNN, "tune.tune()")


def test_measuring_ends_with_its_budget(tmp_path):
    script = "tune.BUDGET = 0; tune.prepare_products(1, 64, 400, 300, (300, 1), (1, 300))"
    assert process(tmp_path, *OWN, script).startswith("0 ")


def test_processes_that_choose_at_the_same_time_choose_the_same(tmp_path):
    environment = {**os.environ, "TANDEM_CACHE_DIR": str(tmp_path), "TANDEM_CACHE": "1"}
    commands = [[sys.executable, "-c", CHOOSES, *times] for times in (OWN, ONEDNN) * 2]
    started = [subprocess.Popen(c, env=environment, stdout=subprocess.PIPE, text=True) for c in commands]
    chosen = {p.communicate()[0].split()[1] for p in started}
    assert 1 == len(chosen)
    assert {process(tmp_path, *OWN).split()[1]} == chosen


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-3], lambda text: text + "1 1 prod", lambda text: "x" + text, lambda text: ""]
)
def test_a_damaged_file_does_no_harm(tmp_path, damage):
    process(tmp_path, *ONEDNN)
    (file,) = (tmp_path / "choices").iterdir()
    file.write_text(damage(file.read_text()))
    first = process(tmp_path, *ONEDNN)
    assert first.endswith("False")
    if not damage("abc").startswith("x"):  # another program's file is left alone
        assert "0 False" == process(tmp_path, *OWN)


def test_a_file_that_others_may_write_is_not_read(tmp_path):
    process(tmp_path, *ONEDNN)
    (file,) = (tmp_path / "choices").iterdir()
    file.chmod(0o666)
    assert "1 True" == process(tmp_path, *OWN)


def test_the_quicker_way_is_preferred_but_for_a_margin(monkeypatch):
    for suggested, ratio, quiet, expected in [
        (True, 1.05, True, True),
        (True, 1.2, True, False),
        (True, 1.2, False, True),
        (False, 0.95, True, False),
        (False, 0.8, True, True),
        (False, 0.8, False, False),
    ]:
        monkeypatch.setattr(tune, "_suggests_own", lambda n, s=suggested: s)
        assert expected == tune.prefers_own(1, tune.Times(ratio, 1.0, quiet))


CONVOLVES = """
import sys
import tandem as td
from tandem.machine import tune

tune.FIRST_STEPS = float(sys.argv[1])
x, w = td.rand(8, 32, 24, 24), td.rand(32, 32, 3, 3)
for size in (3, 1):
    td.conv2d(x, w[..., :size, :size].contiguous(), padding=size // 2)
"""


def convolve(folder, budget: float, **environment: str) -> dict[str, str]:
    """What was chosen afterwards: way and whether it was measured, by convolution."""
    environment = {**os.environ, "TANDEM_CACHE_DIR": str(folder), "TANDEM_CACHE": "1"} | environment
    subprocess.run([sys.executable, "-c", CONVOLVES, str(budget)], env=environment, check=True)
    (file,) = (folder / "choices").iterdir()
    lines = [line.split() for line in file.read_text().splitlines()[1:]]
    return {key: way + measured for way, measured, key in lines if key.startswith("convolution")}


def test_ways_of_convolutions_are_chosen_once(tmp_path):
    """What there was no time for is computed as suggested, also by later processes, unless they are asked to measure it."""
    first = convolve(tmp_path, 1e-9)
    assert ["1", "0"] == [choice[1] for choice in first.values()]
    assert first == convolve(tmp_path, 10)
    tuned = convolve(tmp_path, 0, TANDEM_TUNE="1")
    assert ["1", "1"] == [choice[1] for choice in tuned.values()]
    assert tuned == convolve(tmp_path, 10)


def test_results_do_not_change_from_run_to_run(tmp_path):
    """Whatever the first process measured, and when."""
    script = """
import sys, hashlib
import tandem as td
from tandem.machine import tune
tune.FIRST_STEPS = float(sys.argv[1])
td.manual_seed(0)
net = td.nn.Sequential(td.nn.Conv2d(8, 32, 3), td.nn.ReLU(), td.nn.Conv2d(32, 32, 3), td.nn.Flatten(), td.nn.Linear(32 * 400, 64))
net(td.rand(8, 8, 24, 24)).square().sum().backward()
print(hashlib.md5(b"".join(p.grad.numpy().tobytes() for p in net.parameters())).hexdigest())
"""
    environment = {**os.environ, "TANDEM_CACHE_DIR": str(tmp_path), "TANDEM_CACHE": "1"}
    command = [sys.executable, "-c", script]
    runs = [
        subprocess.run([*command, b], env=environment, check=True, capture_output=True) for b in ("1e-9", "10", "0")
    ]
    assert 1 == len({run.stdout for run in runs})
