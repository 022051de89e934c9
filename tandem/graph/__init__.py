"""The intermediate representation of programs."""

from tandem.graph.ir import Builder, Graph, Node, Type, Value
from tandem.graph.symbolic import Dim, Sym, Symbols

__all__ = ["Builder", "Dim", "Graph", "Node", "Sym", "Symbols", "Type", "Value"]
