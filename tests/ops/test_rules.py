"""Rules of operands, as `takes` says them."""

import pytest

import tandem as td
from tandem.graph.ir import Type
from tandem.ops import rules
from tandem.ops.define import Op
from tandem.ops.recurrence import Recurrence


def every_subclass(cls):
    for sub in cls.__subclasses__():
        yield sub
        yield from every_subclass(sub)


def test_what_operators_take_is_read_whole():
    """A part that the pattern does not know would be passed over, and with it an operand."""
    said = {sub.name: sub.takes for sub in every_subclass(Op) if getattr(sub, "takes", None)}
    assert len(said) > 50
    for name, text in said.items():
        parts, _, _ = rules._pattern(text)
        assert len(text.split()) == len(parts), (name, text)


def test_operands_that_follow_may_have_shapes_of_their_own():
    def f32(*shape):
        return Type(td.float32, shape)

    lstm = Recurrence("lstm", (0, 1, 2, 3), False, True)
    types = [f32(7, 4, 20), f32(1, 4, 5), f32(1, 20, 5), f32(1, 4, 5), Type(td.int64, (4,))]
    rules.obey(lstm, types)
    with pytest.raises(td.ShapeError, match="operands after w"):
        rules.obey(lstm, [*types[:-1], Type(td.int64, (5,))])
    with pytest.raises(td.ValueRangeError, match="recurrence: it takes 3 or more operands; there are 2"):
        rules.obey(lstm, types[:2])
