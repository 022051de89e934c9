"""What a rule says of an operator, and the placements that follow from it.

Note [Factors]
A rule names the loops that an operator is made of: `(m, k) @ (k, n) -> (m, n)` has the factors m, k, n. An axis of an operand is
a factor's name, or None where the operator needs all of the axis. A mesh axis divides one factor: every operand that has it is
divided along it, and so are results that have it; a result that has it not is partial, by the reduction that the rule gives for
the factor. So one procedure finds the placements for all operators:

- an operand that is replicated is divided without communication;
- one that is divided along an axis that is no factor, or partial where the operator is not linear in it, is redistributed;
- where the operator is linear, partial operands stay so, and what is added to them is taken as a summand of one rank;
- two operands that are divided by different factors leave a choice. In what the user has called this is an error that says what
  to write. In gradients nobody can write anything: the larger operand stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from tandem.distributed.sharding.layout import REPLICATE, Placements
from tandem.distributed.sharding.placements import Partial, Shard
from tandem.graph.ir import Value


class Rule(NamedTuple):
    """inputs, outputs: factors of the axes of each. contracted: the reduction of factors that results have not. linear: sets of
    inputs that the operator is linear in together. make(values, placements of inputs and outputs) builds the operator on parts;
    None: as it is."""

    inputs: list[tuple]
    outputs: list[tuple]
    contracted: dict = {}
    linear: tuple[frozenset, ...] = ()
    make: Callable | None = None


class Conflict(NamedTuple):
    """Operands that are divided by different factors along a mesh axis."""

    mesh_axis: int
    operands: list[int]


class Choice(NamedTuple):
    inputs: list[Placements]
    outputs: list[Placements]
    conflicts: list[Conflict]


def choose(rule: Rule, values: list[Value], given: list[Placements], ndim: int) -> Choice:
    """Placements that operands are to have, and that results get."""
    inputs: list[list] = [[] for _ in given]
    outputs: list[list] = [[] for _ in rule.outputs]
    conflicts = []
    for m in range(ndim):
        at = [p[m] for p in given]
        found: dict[object, list[int]] = {}
        for i, p in enumerate(at):
            if isinstance(p, Shard):
                factor = rule.inputs[i][p.dim]
                if factor is not None and _reaches(rule, factor):
                    found.setdefault(factor, []).append(i)
        if len(found) > 1:
            conflicts.append(Conflict(m, [operands[0] for operands in found.values()]))
        factor = max(found, key=lambda f: max(_elements(values[i]) for i in found[f])) if found else None
        partial = frozenset(i for i, p in enumerate(at) if isinstance(p, Partial))
        sums = _passing(rule, at, partial) if factor is None and partial else frozenset()
        for i, factors in enumerate(rule.inputs):
            if i in sums:
                inputs[i].append(Partial("sum"))
            elif factor is not None and factor in factors:
                inputs[i].append(Shard(factors.index(factor)))
            else:
                inputs[i].append(REPLICATE)
        for o, factors in enumerate(rule.outputs):
            if sums:
                outputs[o].append(Partial("sum"))
            elif factor is None:
                outputs[o].append(REPLICATE)
            elif factor in factors:
                outputs[o].append(Shard(factors.index(factor)))
            else:
                outputs[o].append(Partial(rule.contracted[factor]))
    return Choice([tuple(p) for p in inputs], [tuple(p) for p in outputs], conflicts)


def _passing(rule: Rule, at: list, partial: frozenset) -> frozenset:
    """Operands that go in as summands: the partial ones, and with them those that are added to them, on one rank."""
    if any(at[i].reduce_op != "sum" for i in partial):
        return frozenset()
    return next((together for together in rule.linear if partial <= together), frozenset())


def _reaches(rule: Rule, factor) -> bool:
    """Whether a factor may be divided: every result has it, or there is a reduction."""
    return factor in rule.contracted or all(factor in factors for factors in rule.outputs)


def _elements(value: Value) -> int:
    return math.prod(value.shape)
