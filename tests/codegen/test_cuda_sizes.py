"""Known sizes as arguments of CUDA kernels (Note [Sizes as arguments]): which kernels share a source, and what it keeps knowing."""

import random

import pytest

import tandem as td
from tandem.codegen import lower
from tandem.codegen.cuda.render import render
from tandem.codegen.cuda.sizes import inverse
from tandem.codegen.targets import target_of
from tandem.errors import CompileWarning
from tandem.program import driver, stored


class Stop(Exception):
    pass


@pytest.fixture
def steps_of(monkeypatch):
    """The steps for a device of a compiled function, whose sizes are known."""

    def lowered(function, *args):
        found = []

        def optimise(request, source, facts, seconds):
            source = driver._simplify(source, {}, arrange=False)
            numbers = {v for v in source.graph.inputs if v.type.weak}
            found.extend(lower(source.graph, source.layouts, target=target_of(1), on_host=numbers).steps)
            raise Stop

        monkeypatch.setattr(driver, "_optimise", optimise)
        monkeypatch.setattr(stored, "load", lambda *a: None)
        with pytest.warns(CompileWarning):  # that it runs one by one
            td.compile(lambda *args: function(*args))(*args)
        return found

    return lowered


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 48, 64, 1000, 12345, (1 << 30) - 1, 1 << 30, (1 << 31) - 1])
def test_inverses_divide(divisor):
    factor, shift = inverse(divisor) & 0xFFFFFFFF, inverse(divisor) >> 32
    numbers = [random.Random(divisor).randrange(1 << 31) for _ in range(2000)]
    numbers += [x for n in (1, 2, 99, (1 << 31) // divisor) for x in (n * divisor - 1, n * divisor, n * divisor + 1)]
    for x in numbers:
        if 0 <= x < 1 << 31:
            total = (x * factor >> 32) + x
            assert total < 1 << 32
            assert total >> shift == x // divisor


def test_sizes_are_arguments_and_kernels_alike_are_one(steps_of):
    def scale(x, w):
        return td.relu((x * 3.0) * w).exp()

    one, other = (steps_of(scale, td.ones(*shape), td.ones(shape[-1])) for shape in ((40, 64), (7, 192)))
    assert [render(s.kernel) for s in one] == [render(s.kernel) for s in other]
    assert one[0].ints != other[0].ints
    assert {64 // 4, 64} <= set(one[0].ints)
    assert "load_all<4>" in render(one[0].kernel)


def test_what_sizes_are_multiples_of_is_kept(steps_of):
    even, odd = (steps_of(lambda x, w: td.tanh(x) * w, td.ones(40, n), td.ones(n)) for n in (64, 63))
    assert "load_all<4>" in render(even[0].kernel)
    assert "load_all" not in render(odd[0].kernel)


def test_rows_of_columns_are_arguments(steps_of):
    kernels = [
        [render(s.kernel) for s in steps_of(lambda x: x.mean(0), td.ones(rows, columns))]
        for rows, columns in ((5000, 256), (9000, 512))
    ]
    assert kernels[0] == kernels[1]


def test_memory_of_the_program_needs_no_second_version(steps_of):
    """What a function is given may begin anywhere; what the program takes begins at multiples of 16 bytes."""
    given = steps_of(lambda x: x.sum(0), td.ones(4000, 256))
    assert "sure = false" in render(given[0].kernel)
    taken = steps_of(lambda x, y: (x @ y).sum(0), td.ones(4000, 32), td.ones(32, 256))
    sums = [s.kernel for s in taken if hasattr(s, "kernel")]
    assert sums
    assert "sure = false" not in render(sums[0])
