"""What all renderers share: the walk over a kernel's statements, and how deep in its loops an expression is computed."""

from __future__ import annotations

from tandem.codegen.expr import Expr
from tandem.codegen.loops import Accumulate, Declare, Finish, FinishRows, Flush, Loop, Repeat, Store, Transpose


class Renderer:
    """A renderer has a method for each statement: store, accumulate, declare, flush, finish, finish_rows, transpose, repeat, and
    loop_serial, loop_vector, ... for the modes of loops that kernels of its target have.

    Each expression is computed once, in the outermost loop that it is constant in. The depth of a loop's variable is that of the
    loop; of an accumulator, what accumulator_depth says; of all else, that of the deepest it is computed from.
    """

    def __init__(self, linear: list[Expr]):
        self.linear = linear  # expressions that "linear" ones stand for
        self.depths: dict[int, int] = {}
        self.var_depth: dict = {}

    def body(self, statements: list):
        if all(type(s) in (Store, Accumulate) for s in statements):
            for s in statements:
                if type(s) is Store:  # values before any store: a store may overwrite what another value reads
                    self.before_stores(s)
        for s in statements:
            kind = type(s)
            if kind is Store:
                self.store(s)
            elif kind is Loop:
                getattr(self, "loop_" + s.mode)(s)
            elif kind is Accumulate:
                self.accumulate(s)
            elif kind is Declare:
                self.declare(s.acc)
            elif kind is Flush:
                self.flush(s.acc)
            elif kind is Finish:
                self.finish(s.acc)
            elif kind is FinishRows:
                self.finish_rows(s)
            elif kind is Transpose:
                self.transpose(s)
            elif kind is Repeat:
                self.repeat(s)

    def before_stores(self, s: Store):
        """Computes what a store will need."""
        raise NotImplementedError

    def accumulator_depth(self, number: int) -> int:
        raise NotImplementedError

    def depth(self, root: Expr) -> int:
        depths = self.depths
        found = depths.get(root.id)
        if found is not None:
            return found
        stack = [root]
        while stack:
            e = stack[-1]
            if e.id in depths:
                stack.pop()
                continue
            args = e.args if e.op != "linear" else (self.linear[e.attr],)
            missing = [a for a in args if a.id not in depths]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if e.op == "var":
                d = self.var_depth[e.attr]
            elif e.op == "scalar":
                d = self.accumulator_depth(e.attr)
            else:
                d = max([depths[a.id] for a in args], default=0)
            depths[e.id] = d
        return depths[root.id]

    def value(self, root: Expr) -> str:
        """The name of root's value, which is computed first if it has none yet: in the loop of its depth, after its operands."""
        root = self.chase(root)
        stack = [root]
        while stack:
            e = stack[-1]
            scope = self.scopes[self.depth(e)]
            if e.id in scope.values:
                stack.pop()
                continue
            operands = map(self.chase, self.operands(e, scope))
            missing = [x for x in operands if x.id not in self.scopes[self.depth(x)].values]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            scope.values[e.id] = self.compute(e, scope)
        return self.scopes[self.depth(root)].values[root.id]

    def operands(self, e: Expr, scope) -> tuple[Expr, ...]:
        """What is computed before e is."""
        return e.args

    def compute(self, e: Expr, scope) -> str:
        """Writes the code of e, whose operands have values, and gives the name of what it computes."""
        raise NotImplementedError

    def forget_depths(self, depth: int):
        """A loop at `depth` closes: its variables may be used again elsewhere."""
        self.depths = {k: d for k, d in self.depths.items() if d < depth}

    def chase(self, e: Expr) -> Expr:
        while e.op == "linear":
            e = self.linear[e.attr]
        return e
