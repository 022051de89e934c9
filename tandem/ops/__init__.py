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
    classify,
    comparison,
    complexes,
    conv,
    create,
    cumulative,
    division,
    dropout,
    einsum,
    embedding,
    gamma,
    getitem,
    grid,
    incomplete,
    index,
    join,
    linalg,
    linear,
    loss,
    matmul,
    memory_format,
    movement,
    nonzero,
    normalization,
    pick,
    polynomials,
    pool,
    power,
    random,
    rearrange,
    recurrent,
    reduce,
    region,
    rounding,
    scatter,
    softmax,
    sort,
    special,
    statistics,
    trigonometry,
    unary,
    views,
)
from tandem.ops.define import FUNCTIONS, INTERNAL, METHODS, OWN_METHODS, PRIMITIVES

globals().update({cls.__name__: cls for cls in PRIMITIVES.values()})
globals().update(INTERNAL)
globals().update(FUNCTIONS)
