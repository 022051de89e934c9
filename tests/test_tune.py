"""What is measured per machine: who computes products, how that is kept, and that both ways give the same numbers."""

import subprocess
import sys

import numpy as np
import pytest

import tandem as td
from tandem import _runtime, tune

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


def test_a_program_with_a_large_product_measures_its_kind_once(here, monkeypatch):
    measured = []
    monkeypatch.setattr(tune, "measure", lambda kind, runs: measured.append(kind) or (True, 1.0, 2.0))
    tune.prepare_products(1, 64, 512, 512, (512, 1), (1, 512))
    tune.prepare_products(1, 65, 512, 513, (513, 1), (1, 513))
    tune.prepare_products(1, 8, 8, 8, (8, 1), (8, 1))
    assert measured == ["few_rows"]
    (file,) = (here / "machine").iterdir()
    assert file.read_text() == "few_rows own\n"
    monkeypatch.setattr(tune, "_known", {})  # another process
    tune.prepare_products(1, 64, 512, 512, (512, 1), (1, 512))
    assert measured == ["few_rows"]


def test_measuring_ends_with_its_budget(here, monkeypatch):
    monkeypatch.setattr(tune, "_spent", tune.BUDGET)
    monkeypatch.setattr(tune, "measure", lambda *a: pytest.fail("measured"))
    tune.prepare_products(1, 64, 512, 512, (512, 1), (1, 512))


def test_a_file_that_is_no_list_of_kinds_is_left_alone(here):
    (here / "machine").mkdir()
    tune_file = here / "machine" / tune._path().rpartition("/")[2]
    tune_file.write_text("few_rows own and more\nwide maybe\n")
    assert tune.load() == {}


def test_what_was_used_keeps_its_way_while_the_process_lives():
    script = """
import numpy as np
from tandem import _runtime, tune
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
    number = tune.KINDS.index("few_rows")
    for suggested, ratio, expected in [
        (True, 1.05, True),
        (True, 1.2, False),
        (False, 0.95, False),
        (False, 0.8, True),
    ]:
        monkeypatch.setattr(tune, "_suggests_own", lambda n, s=suggested: s)
        monkeypatch.setattr(_runtime, "time_products", lambda n, runs, r=ratio: (r, 1.0) if n == number else None)
        assert tune.measure("few_rows", 1) == (expected, ratio, 1.0)
