"""Gradients of attention that are put together: where queries, keys and values came out of one product, its gradient is one matrix,
and AttentionBackwardPacked writes it."""

from __future__ import annotations

from tandem.codegen.buffer import is_one, same_shape
from tandem.ops.attention import AttentionBackward, AttentionBackwardPacked
from tandem.ops.movement import Permute, Reshape


def attention_of_three(node):
    """The AttentionBackward whose gradients a concatenation puts together, queries, keys and values, if that is all it does."""
    if node.op.axis != 0 or len(node.inputs) != 3:
        return None
    sources = [v.node.inputs[0] if isinstance(v.op, Reshape) else None for v in node.inputs]
    if None in sources or not isinstance(sources[0].op, AttentionBackward):
        return None
    made = sources[0].node
    if sources != list(made.outputs) or any(len(v.shape) != 5 or not is_one(v.shape[0]) for v in node.inputs):
        return None
    shapes = [v.shape for v in sources]
    return made if all(same_shape(shapes[0], s) for s in shapes) else None


def packed(op, *inputs):
    """Written straight to where they are wanted; the operator that made them apart is left without users."""
    made = inputs[0].node.inputs[0].node
    together = AttentionBackwardPacked(made.op.causal, made.op.masked, made.op.scale)(*made.inputs)
    return Permute((2, 0, 3, 1, 4))(together)
