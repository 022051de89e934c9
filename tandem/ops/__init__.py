"""What can be computed: operators, one file per family.

Inside the package operators are reached as `F.name` after `import tandem.ops as F`, looked up when called, so that families may
use one another.
"""

# isort: off
from tandem.ops.define import FUNCTIONS, PRIMITIVES
from tandem.ops.create import *
from tandem.ops.arithmetic import *
from tandem.ops.movement import *
from tandem.ops.reduce import *
from tandem.ops.comparison import *
from tandem.ops.unary import *
from tandem.ops.index import *
from tandem.ops.getitem import *
from tandem.ops.matmul import *
