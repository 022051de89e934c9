"""What can be computed: operators, one file per family.

Inside the package operators are reached as `F.name` after `import tandem.ops as F`, looked up when called, so that families may
use one another: primitives by their class name (`F.Reshape`), functions by theirs (`F.reshape`).
"""

# A module here registers its primitives and functions when it is imported; a new family is one line.
from tandem.ops import (
    activation,
    again,
    arithmetic,
    attention,
    bessel,
    bitwise,
    calculus,
    classify,
    collective,
    combine,
    comparison,
    complexes,
    conv,
    create,
    cumulative,
    distances,
    division,
    draws,
    dropout,
    edges,
    einsum,
    embedding,
    fft,
    gamma,
    getitem,
    grid,
    histogram,
    incomplete,
    index,
    integers,
    join,
    linalg,
    linear,
    loss,
    lstm_sequence,
    matmul,
    memory_format,
    movement,
    nonzero,
    normalization,
    order,
    partition,
    pick,
    polynomials,
    pool,
    power,
    products,
    ragged_attention,
    random,
    rearrange,
    recurrent,
    reduce,
    region,
    rounding,
    scatter,
    segments,
    sets,
    signal_windows,
    softmax,
    sort,
    sparse_methods,
    special,
    stage,
    statistics,
    transfer,
    trigonometry,
    unary,
    views,
)

from tandem.ops import torch_names  # isort: skip  names of functions above
from tandem.ops.define import FUNCTIONS, INTERNAL, METHODS, OWN_METHODS, PRIMITIVES

globals().update({cls.__name__: cls for cls in PRIMITIVES.values()})
globals().update(INTERNAL)
globals().update(FUNCTIONS)
