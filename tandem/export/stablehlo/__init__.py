"""Functions as StableHLO: `td.export.stablehlo(fn, args)`."""

from __future__ import annotations

import dataclasses

from tandem import _runtime
from tandem.errors import warn
from tandem.export.in_parts import in_parts
from tandem.export.stablehlo import attention, fourier, loops, primitives
from tandem.export.stablehlo.writer import Writer, type_of
from tandem.export.trace import Exported, trace


@dataclasses.dataclass(frozen=True)
class StableHLO:
    """A function as text: `main` takes the arguments and then the weights."""

    text: str
    weights: dict[str, _runtime.Tensor]
    exported: Exported

    def __str__(self) -> str:
        return self.text


def stablehlo(fn, args, *, dynamic=False) -> StableHLO:
    """A function or module as StableHLO text, for the sizes of args.

    args: the tensors of one call, or one tensor.
    dynamic: True: the first axis of every argument may have any size; {name: axes}: these. Compilers for accelerators mostly want
        none: TPUs', for instance.

    >>> print(td.export.stablehlo(lambda x: x + x, td.ones(2)))
    module @tandem {
      func.func public @main(%x: tensor<2xf32>) -> (tensor<2xf32>) {
        %1 = stablehlo.add %x, %x : tensor<2xf32>
        return %1 : tensor<2xf32>
      }
    }
    """
    args = args if isinstance(args, (tuple, list)) else (args,)
    exported = trace(fn, tuple(args), dynamic=dynamic)
    for reason in exported.graph.symbols.reasons.values():
        warn(
            f"stablehlo: the text has no checks of sizes; what it computes is not what the function does: {reason}",
            UserWarning,
        )
    exported = dataclasses.replace(exported, graph=in_parts(exported.graph))
    graph, w = exported.graph, Writer()
    w.used = {v for n in graph.nodes for v in n.inputs} | set(graph.outputs)
    names = [f"%{name}" for name in exported.arguments] + [f"%w{i}" for i in range(len(exported.weights))]
    w.names.update(zip(graph.inputs, names, strict=True))
    for index, origin in enumerate(graph.symbols.origins):
        if origin[0] == "size":
            w.sources[index] = (names[origin[1]], type_of(graph.inputs[origin[1]].type), origin[2])
    results = w.write(graph)
    types = ", ".join(type_of(v.type) for v in graph.outputs)
    arguments = ", ".join(f"{n}: {type_of(v.type)}" for n, v in zip(names, graph.inputs, strict=True))
    lines = [
        "module @tandem {", f"  func.func public @main({arguments}) -> ({types}) {{", *w.lines,
        f"    return {', '.join(results)} : {types}", "  }", "}",
    ]  # fmt: skip
    return StableHLO("\n".join(lines), exported.weights, exported)
