"""How deep in a kernel's loops an expression is: what both renderers, LLVM's and CUDA's, place values by."""

from __future__ import annotations

from tandem.codegen.expr import Expr


class Depths:
    """The depth of a loop's variable is that of the loop; of an accumulator, what accumulator_depth says; of all else, that of the
    deepest it is computed from."""

    def __init__(self, linear: list[Expr]):
        self.linear = linear  # expressions that "linear" ones stand for
        self.depths: dict[int, int] = {}
        self.var_depth: dict = {}

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

    def forget_depths(self, depth: int):
        """A loop at `depth` closes: its variables may be used again elsewhere."""
        self.depths = {k: d for k, d in self.depths.items() if d < depth}

    def chase(self, e: Expr) -> Expr:
        while e.op == "linear":
            e = self.linear[e.attr]
        return e
