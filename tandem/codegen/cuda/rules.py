"""How operators are written in others on CUDA devices."""

from __future__ import annotations

from tandem.codegen.cuda.compose import (
    attention_formula,
    biased,
    concatenation,
    convolution,
    rectified,
    wide_products,
)
from tandem.codegen.cuda.fft import FORMULAS
from tandem.codegen.cuda.pool_taps import taps
from tandem.codegen.cuda.rewrite import casts, masks
from tandem.codegen.rules import RuleTable
from tandem.ops.attention import Attention, AttentionBackward
from tandem.ops.conv import ConvBackwardData, ConvBackwardWeight, ConvForward
from tandem.ops.join import Concat

RULES = RuleTable(
    calls=(biased, rectified, wide_products),
    operators={
        **dict.fromkeys((ConvForward, ConvBackwardData, ConvBackwardWeight), convolution),
        **dict.fromkeys((Attention, AttentionBackward), attention_formula),
        **dict.fromkeys(FORMULAS, lambda node, lowering: FORMULAS[type(node.op)]),
        Concat: concatenation,
    },
    traffic=(casts, masks, taps),
)
