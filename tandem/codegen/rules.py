"""How operators are written in others for a target: one table for each, in three groups that come one after the other.

    calls       more than one operator as one call of the library: a bias, a cast, a ReLU that it does along the way
    operators   by type: what has no routine or kernel of its own here. What is made of others everywhere, or but for one kind of
                target, says so itself (Op.made_of)
    traffic     what is computed in another way for the sake of memory traffic

A rule for `calls` or `traffic` is a function of the Lowering that gives nodes, with a formula for each; one of `operators` is a
function of a node and the Lowering that gives a formula, or None. A formula is a function of the operator and its inputs.
"""

from __future__ import annotations

from tandem.codegen.expand import expand, without_unused
from tandem.codegen.lowering import Lowering, lowering_step
from tandem.graph.ir import Value


class RuleTable:
    def __init__(self, calls: tuple = (), operators: dict | None = None, traffic: tuple = ()):
        self.calls = calls
        self.operators = operators or {}
        self.traffic = traffic


@lowering_step
def extend_calls(lowering: Lowering):
    """What the library does in one call, where a part of it would be a kernel of its own."""
    _rewrite(lowering, lowering.target.rules.calls)


@lowering_step(optional=False)
def expand_operators(lowering: Lowering):
    """Operators without a routine or a kernel here become those that they are made of."""
    rules = lowering.target.rules.operators

    def choose(node):
        rule = rules.get(type(node.op))
        return None if rule is None else rule(node, lowering)

    graph, made = expand(lowering.graph, choose, lowering.target.kind)
    _replace(lowering, graph, made)


@lowering_step
def save_traffic(lowering: Lowering):
    """What reads or writes less memory when it is computed in another way."""
    _rewrite(lowering, lowering.target.rules.traffic)


def _rewrite(lowering: Lowering, rules: tuple):
    found: dict = {}
    for rule in rules:
        found.update(rule(lowering))
    if found:
        graph, made = expand(lowering.graph, found.get, lowering.target.kind)
        _replace(lowering, graph, made)


def _replace(lowering: Lowering, graph, made: dict[Value, Value]):
    if made:
        lowering.replace(made)
        lowering.graph = without_unused(graph, lowering.saved)
