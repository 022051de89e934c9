"""Tables of vectors."""

from __future__ import annotations

from tandem.nn import functional as F
from tandem.nn import init
from tandem.nn.bags import renormalize_rows_
from tandem.nn.linear import empty_parameter
from tandem.nn.module import Module
from tandem.nn.parameter import Parameter


def _padding_row(padding_idx: int | None, num_embeddings: int) -> int | None:
    if padding_idx is None:
        return None
    if not -num_embeddings <= padding_idx < num_embeddings:
        raise ValueError(f"padding_idx {padding_idx} is outside a table of {num_embeddings} rows")
    return padding_idx % num_embeddings


class _Table(Module):
    def __init__(self, num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, weight, device, dtype):
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = _padding_row(padding_idx, num_embeddings)
        self.max_norm, self.norm_type = max_norm, norm_type
        if weight is None:
            self.weight = empty_parameter(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.reset_parameters()
        else:
            if weight.shape != (num_embeddings, embedding_dim):
                raise ValueError(f"the given weight is {weight.shape} and must be {(num_embeddings, embedding_dim)}")
            self.weight = Parameter(weight)

    def reset_parameters(self):
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight.data[self.padding_idx])

    @classmethod
    def _around(cls, embeddings, freeze: bool, **kwargs):
        if embeddings.ndim != 2:
            raise ValueError(f"the table must be (rows, columns); it is {tuple(embeddings.shape)}")
        rows, columns = embeddings.shape
        made = cls(rows, columns, _weight=embeddings, **kwargs)
        made.weight.requires_grad = not freeze
        return made

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.sparse:
            text += ", sparse=True"
        return text


class Embedding(_Table):
    """Rows of a table by index. padding_idx: a row that starts at zero and takes no part in gradients.

    input: (*) of integers -> (*, embedding_dim). max_norm: rows that are used are shortened to it first. sparse: the gradient of
    the weight is sparse, and optim.SGD, optim.Adagrad and optim.SparseAdam change only the rows that a batch used.

    >>> td.nn.Embedding(10, 3)(td.tensor([[1, 2], [4, 9]])).shape
    (2, 2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight=None,
        _freeze: bool = False,
        device=None,
        dtype=None,
    ):
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, _weight, device, dtype)
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self.weight.requires_grad = not _freeze

    @classmethod
    def from_pretrained(cls, embeddings, freeze: bool = True, padding_idx: int | None = None, max_norm: float | None = None,
                        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False):  # fmt: skip
        """A layer around a given table, fixed by default."""
        return cls._around(
            embeddings, freeze, padding_idx=padding_idx, max_norm=max_norm, norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq, sparse=sparse,
        )  # fmt: skip

    def forward(self, input):
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )


class EmbeddingBag(_Table):
    """Sums, means or maxima over bags of rows, without keeping the rows.

    input: (B, N) of integers, or (N) with offsets (B) where bags begin -> (B, embedding_dim)

    >>> bag = td.nn.EmbeddingBag(10, 3, mode="sum")
    >>> bag(td.tensor([1, 2, 4, 5]), td.tensor([0, 3])).shape
    (2, 3)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
                 scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight=None,
                 include_last_offset: bool = False, padding_idx: int | None = None, device=None, dtype=None):  # fmt: skip
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, _weight, device, dtype)
        self.scale_grad_by_freq, self.mode, self.sparse = scale_grad_by_freq, mode, sparse
        self.include_last_offset = include_last_offset

    @classmethod
    def from_pretrained(cls, embeddings, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0,
                        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                        include_last_offset: bool = False, padding_idx: int | None = None):  # fmt: skip
        """A layer around a given table, fixed by default."""
        return cls._around(
            embeddings, freeze, max_norm=max_norm, norm_type=norm_type, scale_grad_by_freq=scale_grad_by_freq, mode=mode,
            sparse=sparse, include_last_offset=include_last_offset, padding_idx=padding_idx,
        )  # fmt: skip

    def forward(self, input, offsets=None, per_sample_weights=None):
        if self.max_norm is not None:
            renormalize_rows_(self.weight, input, self.max_norm, self.norm_type)
        return F.embedding_bag(
            input, self.weight, offsets, mode=self.mode, per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset, padding_idx=self.padding_idx, sparse=self.sparse,
            scale_grad_by_freq=self.scale_grad_by_freq,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"
