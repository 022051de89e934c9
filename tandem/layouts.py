"""How tensors lie in memory: td.strided, td.sparse_coo, td.sparse_csr."""

from __future__ import annotations


class Layout:
    """How a tensor lies in memory: td.strided, td.sparse_coo, td.sparse_csr."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"tandem.{self.name}"

    def __reduce__(self):
        return _layout, (self.name,)


def _layout(name: str) -> Layout:
    return {"strided": strided, "sparse_coo": sparse_coo, "sparse_csr": sparse_csr, "jagged": jagged}[name]


strided, sparse_coo, sparse_csr = Layout("strided"), Layout("sparse_coo"), Layout("sparse_csr")
jagged = Layout("jagged")  # that of nested tensors
