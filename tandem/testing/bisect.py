"""td.bisect: which pass or kernel makes a compiled function differ from the same function run eagerly.

    print(td.bisect(step, x, y, state=model.parameters()))
    the results part at output 0, by at most 0.25; without simplify they agree

The function runs eagerly once, then compiled: with every pass, with each one left out, and once with every step of its programs
compared with the operators that it stands for (judge.py).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import NamedTuple

import tandem as td
from tandem.codegen.lower import OPTIONAL
from tandem.compiling.compiled import Compiled
from tandem.errors import DTypeError
from tandem.nn.module import Module
from tandem.passes import pipeline
from tandem.switches import SKIP, switches
from tandem.tensors.methods import Tensor
from tandem.testing.judge import judge


class Bisection(NamedTuple):
    """What td.bisect found.

    agree       whether compiled and eager results agree with all passes in place
    passes      passes without which they agree; any one of them is at fault, or two of them together if there are several
    difference  the largest difference of an element with all passes in place
    output      the output where that is
    steps       kernels and routines that give other results than their operators do eagerly (tandem.testing.judge.Fault)
    """

    agree: bool
    passes: tuple[str, ...]
    difference: float
    output: int
    steps: tuple = ()

    def __str__(self):
        if self.agree:
            return f"compiled and eager results agree (largest difference {self.difference:.3g})"
        found = f"the results part at output {self.output}, by at most {self.difference:.3g}; "
        if self.passes:
            found += f"without {' or '.join(self.passes)} they agree"
        elif not self.steps:
            found += "no single pass is at fault, nor any kernel: look at capture (TANDEM_DEBUG=2)"
        else:
            found += "no single pass is at fault"
        return found + "".join(f"\n  {fault}" for fault in self.steps)


def bisect(fn, *args, state: Iterable = (), rtol: float = 1e-4, atol: float = 1e-5, **kwargs) -> Bisection:
    """Finds the pass or the kernel at which compiled and eager results of fn(*args, **kwargs) part.

    `state` are tensors that fn writes, or modules, whose parameters and buffers are meant: they and their gradients are put back
    before every run and at the end, and compared after each. Every run gets copies of the tensors among the arguments, which are
    compared, too. The generator of random numbers is put back. Results are compared as td.allclose does; NaN equals NaN.

    >>> print(td.bisect(lambda x: (x * 2 + 1).sum(), td.ones(3)))
    compiled and eager results agree (largest difference 0)
    """
    function = fn._fn if isinstance(fn, Compiled) else fn
    state = _state(state)
    with td.no_grad():
        before = [(t.detach().clone(), None if t.grad is None else t.grad.clone()) for t in state]
    generator = td.default_generator
    random_state = generator.get_state()

    def put_back():
        with td.no_grad():
            for t, (value, grad) in zip(state, before, strict=True):
                t.copy_(value)
                t.grad = None if grad is None else grad.clone()
        generator.set_state(random_state)

    def run(compiled: bool, skip: str = "", watch=None):
        put_back()
        copies = {id(t): t for t in state}
        own_args, own_kwargs = _copied((args, kwargs), copies)
        with switches(EAGER=0 if compiled else 1, SKIP=skip):
            called = Compiled(function) if compiled else function
            if watch is not None:
                called._report.fresh = True  # a program from disk has no steps to look at
                called._programs.set_watch(functools.partial(watch, called._report))
            result = called(*own_args, **own_kwargs)
        with td.no_grad():
            kept = [*_tensors(result), *copies.values()]
            return [t.detach().clone() for t in [*kept, *(t.grad for t in copies.values() if t.grad is not None)]]

    inherited = SKIP.value
    try:
        expected = run(compiled=False)
        parts = functools.partial(_parts, expected, rtol=rtol, atol=atol)
        differs, difference, output = parts(run(compiled=True, skip=inherited))
        if not differs:
            return Bisection(True, (), difference, output)
        names = [*dict.fromkeys(p.__name__ for p in pipeline.PIPELINE), *OPTIONAL]
        guilty = [n for n in names if not parts(run(compiled=True, skip=f"{inherited},{n}" if inherited else n))[0]]
        faults: list = []

        def watch(report, tensors, numbers, ints):
            def differ(a, b):
                return _parts([a], [b], rtol=rtol, atol=atol)[:2]

            faults.extend(judge(report[-1]["graph"], tensors, numbers, ints, differ))

        run(compiled=True, skip=inherited, watch=watch)
        return Bisection(False, tuple(guilty), difference, output, tuple(faults))
    finally:
        put_back()


def _state(state) -> list:
    """The tensors that are meant: those of modules, dicts and other containers."""
    if isinstance(state, Tensor):
        return [state]
    if isinstance(state, Module):
        return [*state.parameters(), *state.buffers()]
    if isinstance(state, dict):
        state = state.values()
    if not isinstance(state, Iterable) or isinstance(state, (str, bytes)):
        raise DTypeError(
            "bisect", f"state has a {type(state).__name__}, which holds no tensors that could be put back",
            fix="give tensors, modules, or lists of them, such as state=model or state=[*model.parameters(), counter]",
        )  # fmt: skip
    return list({id(t): t for item in list(state) for t in _state(item)}.values())


def _copied(value, copies: dict):
    """A value with copies of the tensors in it; copies: those that are there already, by the identity of what they stand for."""
    if isinstance(value, Tensor):
        if id(value) not in copies:
            copies[id(value)] = value.detach().clone().requires_grad_(value.requires_grad)
        return copies[id(value)]
    if type(value) in (list, tuple):
        return type(value)(_copied(item, copies) for item in value)
    if type(value) is dict:
        return {key: _copied(item, copies) for key, item in value.items()}
    return value


def _tensors(result) -> list:
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, dict):
        result = result.values()
    return (
        [t for item in result for t in _tensors(item)]
        if isinstance(result, Iterable) and not isinstance(result, str)
        else []
    )


def _parts(expected: list, actual: list, *, rtol: float, atol: float) -> tuple[bool, float, int]:
    """Whether results differ, the largest difference of an element, and in which result that is."""
    if len(expected) != len(actual):
        return True, float("inf"), min(len(expected), len(actual))
    worst, where, differs = 0.0, 0, False
    for i, (a, b) in enumerate(zip(expected, actual, strict=True)):
        if a.shape != b.shape or a.dtype is not b.dtype:
            return True, float("inf"), i
        if 0 in a.shape:
            continue
        if not bool(td.allclose(b, a, rtol=rtol, atol=atol, equal_nan=True)):
            differs = True
        gap = float(td.nan_to_num((b.to(td.float64) - a.to(td.float64)).abs()).max().item())
        if gap > worst:
            worst, where = gap, i
    return differs, worst, where
