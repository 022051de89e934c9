"""What can be computed: operators, one file per family."""

from tandem.ops.create import Constant, Iota, RandomBits, Size
from tandem.ops.index import CheckIndex, Gather, Scatter
from tandem.ops.movement import Embed, Expand, Permute, Reshape, Slice
from tandem.ops.reduce import Reduce
