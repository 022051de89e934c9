"""Compiled functions that meet something new again and again: counted, told of, limited."""

import math
import warnings

import pytest

import tandem as td
from tandem.errors import RecompileWarning


def grown(x, count):
    for _ in range(count):
        x = x * 1.5
    return x


def told(fn, calls):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        results = [fn(*c) for c in calls]
    return results, [str(w.message) for w in seen if w.category is RecompileWarning]


def test_a_function_runs_eagerly_after_so_many_recompiles():
    fn = td.compile(grown, recompile_limit=4)
    results, messages = told(fn, [(td.ones(2), n) for n in range(1, 12)])
    assert fn.recompiles == 4
    assert [1.5**n for n in range(1, 12)] == [r[0].item() for r in results]
    assert len(messages) == 2
    assert "6 more sequences of operators run eagerly" in fn.explain()


def test_the_warning_names_function_line_reason_and_count():
    fn = td.compile(lambda x, p: td.dropout(x, p) * 2, recompile_limit=4)
    _, (many, limit) = told(fn, [(td.ones(2), p / 10) for p in range(1, 8)])
    assert many.startswith("<lambda> is compiled for the 3rd time from test_recompiles.py:")
    assert "dropout (test_recompiles.py:" in many
    assert "got p=0.3, was 0.2" in many
    assert limit.startswith("<lambda> was compiled 5 times from test_recompiles.py:")
    assert "got p=0.6, was 0.5" in limit


def test_programs_that_exist_go_on_serving():
    fn = td.compile(grown, recompile_limit=1)
    told(fn, [(td.ones(2), n) for n in (1, 2, 3, 4)])
    before = dict(fn._programs.program_runs())
    told(fn, [(td.ones(2), 1), (td.ones(2), 2)])
    assert {n: runs + 1 for n, runs in before.items()} == dict(fn._programs.program_runs())


def test_programs_that_begin_at_other_lines_are_no_recompiles():
    @td.compile
    def fn(x):
        if (x * 2).sum() > 0:
            x = x + 1
        if (x * 3).sum() > 0:
            x = x + 2
        return x

    told(fn, [(td.ones(2),)] * 3)
    assert fn.recompiles == 0


@pytest.mark.parametrize(
    ("fn", "calls"),
    [
        (lambda x, n: x * n + 1, [(3, n) for n in range(2, 30)]),
        (lambda x, n: x * n + 1, [(3, n / 7) for n in range(2, 30)]),
        (lambda x, n: x[:n].sum(), [(32, n) for n in range(1, 30)]),
        (lambda x, n: td.zeros(n) + x[:n], [(32, n) for n in range(1, 30)]),
        (lambda x, n: (x * 2).softmax(0).sum(), [(n, 0) for n in range(1, 30)]),
        (lambda x, n: x * (1 - 0.9**n), [(3, n) for n in range(1, 30)]),
    ],
)
def test_a_stream_of_numbers_or_lengths_costs_a_handful_of_programs(fn, calls):
    compiled = td.compile(fn)
    _, messages = told(compiled, [(td.ones(size), n) for size, n in calls])
    assert compiled.recompiles <= 3
    assert not messages


def test_the_limit_may_be_none_at_all():
    fn = td.compile(grown, recompile_limit=math.inf)
    _, messages = told(fn, [(td.ones(2), n) for n in range(1, 13)])
    assert fn.recompiles == 11
    assert not messages


def test_the_limit_may_be_a_switch():
    with td.switches(RECOMPILE_LIMIT=2):
        fn = td.compile(grown)
        told(fn, [(td.ones(2), n) for n in range(1, 7)])
    assert fn.recompiles == 2


def test_copies_and_modules_have_the_limit():
    import copy

    fn = copy.copy(td.compile(grown, recompile_limit=1))
    told(fn, [(td.ones(2), n) for n in range(1, 5)])
    assert fn.recompiles == 1
    layer = td.compile(td.nn.Identity(), recompile_limit=3)
    assert type(layer)._compiled_call._report.recompiles.limit == 3


@pytest.mark.parametrize(("limit", "error"), [(1.5, td.DTypeError), (True, td.DTypeError), (-1, td.ValueRangeError)])
def test_a_limit_that_is_none_is_refused(limit, error):
    with pytest.raises(error, match="compile: recompile_limit is"):
        td.compile(grown, recompile_limit=limit)
