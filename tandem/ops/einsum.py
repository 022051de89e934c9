"""Sums of products named by index letters, and tensordot."""

from __future__ import annotations

import tandem.ops as F
from tandem.errors import ShapeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.graph.symbolic import hint, product
from tandem.ops.define import op, public
from tandem.ops.prepare import normalize_axis, promote, show, show_shape


class _Equation:
    """inputs: labels of each operand, output: those of the result. An ellipsis becomes labels -1, -2, ... from the right."""

    def __init__(self, text: str, operands: list[Value]):
        compact = text.replace(" ", "")
        left, arrow, right = compact.partition("->")
        terms = left.split(",")
        if len(terms) != len(operands):
            raise ValueRangeError("einsum", f"{text!r} names {len(terms)} operands, {len(operands)} were given")
        self.text = text
        self.inputs = [self._labels(term, x) for term, x in zip(terms, operands, strict=True)]
        hidden = max((-label for labels in self.inputs for label in labels if isinstance(label, int)), default=0)
        spread = [-i for i in range(hidden, 0, -1)]
        if arrow:
            self._check_ellipsis(right)
            before, dots, after = right.partition("...")
            self.output = [*before, *(spread if dots else ()), *after]
        else:
            counts: dict = {}
            for labels in self.inputs:
                for label in labels:
                    counts[label] = counts.get(label, 0) + 1
            self.output = spread + sorted(label for label, n in counts.items() if n == 1 and isinstance(label, str))
        known = {label for labels in self.inputs for label in labels}
        for label in self.output:
            if label not in known or self.output.count(label) > 1:
                raise ValueRangeError(
                    "einsum", f"output label {label!r} of {text!r} must appear in an input, and once in the output"
                )

    def _check_ellipsis(self, term: str):
        letters = term.replace("...", "", 1)
        if not all(c.isalpha() for c in letters):
            raise ValueRangeError("einsum", f"{term!r} in {self.text!r}: labels are letters, with at most one '...'")

    def _labels(self, term: str, x: Value) -> list:
        self._check_ellipsis(term)
        before, dots, after = term.partition("...")
        named = len(before) + len(after)
        if named != x.ndim if not dots else named > x.ndim:
            raise ShapeError(
                "einsum", f"{term!r} in {self.text!r} does not fit an operand of shape {show_shape(x.shape)}"
            )
        return [*before, *(-i for i in range(x.ndim - named, 0, -1)), *after]


class _Term:
    """An operand on the way: a value and the label of each axis, all different."""

    def __init__(self, value: Value, labels: list):
        self.value, self.labels = value, labels

    def arranged(self, labels: list) -> Value:
        axes = tuple(self.labels.index(label) for label in labels)
        return self.value if axes == tuple(range(len(axes))) else F.Permute(axes)(self.value)

    def without(self, labels: set) -> _Term:
        """Summed over labels."""
        axes = tuple(i for i, label in enumerate(self.labels) if label in labels)
        if not axes:
            return self
        return _Term(
            F.sum(self.value, axes, dtype=self.value.dtype), [label for label in self.labels if label not in labels]
        )


def _diagonals(x: Value, labels: list) -> _Term:
    """Takes the diagonal over axes that share a label."""
    labels = list(labels)
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            a = labels.index(label)
            b = labels.index(label, a + 1)
            if x.shape[a] != x.shape[b]:
                raise ShapeError(
                    "einsum",
                    f"label {label!r} stands for sizes {show(x.shape[a])} and {show(x.shape[b])} of one operand",
                )
            x = F.diagonal(x, 0, a, b)
            labels = [m for i, m in enumerate(labels) if i not in (a, b)] + [label]
    return _Term(x, labels)


def _sizes(terms: list[_Term]) -> dict:
    sizes: dict = {}
    for term in terms:
        for label, n in zip(term.labels, term.value.shape, strict=True):
            if label not in sizes or sizes[label] == 1:
                sizes[label] = n
            elif n != 1 and n != sizes[label]:
                raise ShapeError("einsum", f"label {label!r} stands for sizes {show(sizes[label])} and {show(n)}")
    return sizes


def _drop_ones(term: _Term, sizes: dict) -> _Term:
    """Without axes of size 1 whose label is larger elsewhere: they broadcast."""
    shape, labels = [], []
    for label, n in zip(term.labels, term.value.shape, strict=True):
        if not (n == 1 and sizes[label] != 1):
            shape.append(n)
            labels.append(label)
    return term if len(labels) == len(term.labels) else _Term(F.Reshape(tuple(shape))(term.value), labels)


def _contract(a: _Term, b: _Term, kept: set) -> _Term:
    """One term for two; labels that are in `kept` stay."""
    a, b = (x.without({m for m in x.labels if m not in kept and m not in y.labels}) for x, y in ((a, b), (b, a)))
    shared = [m for m in a.labels if m in b.labels]
    batch, summed = [m for m in shared if m in kept], [m for m in shared if m not in kept]
    left, right = [m for m in a.labels if m not in shared], [m for m in b.labels if m not in shared]
    size = dict(zip(a.labels, a.value.shape, strict=True)) | dict(zip(b.labels, b.value.shape, strict=True))

    def sizes(labels) -> tuple:
        return tuple(size[m] for m in labels)

    if not summed or not (left or right):  # no matrix product in it: multiply, and add up in the same kernel
        x = F.Reshape(sizes(batch + summed + left) + (1,) * len(right))(a.arranged(batch + summed + left))
        y = F.Reshape(sizes(batch + summed) + (1,) * len(left) + sizes(right))(b.arranged(batch + summed + right))
        return _Term(x * y, batch + summed + left + right).without(set(summed))
    x = F.Reshape((*sizes(batch), product(sizes(left)), product(sizes(summed))))(a.arranged(batch + left + summed))
    y = F.Reshape((*sizes(batch), product(sizes(summed)), product(sizes(right))))(b.arranged(batch + summed + right))
    return _Term(F.Reshape(sizes(batch + left + right))(F.Matmul()(x, y)), batch + left + right)


def _best_pair(terms: list[_Term], output: set) -> tuple[int, int]:
    """Greedy: the two terms whose product grows memory least, then costs least."""

    def elements(labels, size) -> int:
        return int(product(hint(size[m]) for m in labels))

    best, choice = None, (0, 1)
    for i in range(len(terms)):
        for j in range(i + 1, len(terms)):
            a, b = terms[i], terms[j]
            size = dict(zip(a.labels, a.value.shape, strict=True)) | dict(zip(b.labels, b.value.shape, strict=True))
            others = output.union(*(t.labels for k, t in enumerate(terms) if k not in (i, j)))
            result = elements([m for m in size if m in others], size)
            score = (result - elements(a.labels, size) - elements(b.labels, size), elements(size, size))
            if best is None or score < best:
                best, choice = score, (i, j)
    return choice


@op(name="einsum", hidden=True)
def _einsum(operands: Tensors, equation):
    operands = list(promote(*operands))
    parsed = _Equation(equation, operands)
    terms = [_diagonals(x, labels) for x, labels in zip(operands, parsed.inputs, strict=True)]
    sizes = _sizes(terms)
    terms = [_drop_ones(term, sizes) for term in terms]
    output = set(parsed.output)
    while len(terms) > 1:
        i, j = _best_pair(terms, output)
        second, first = terms.pop(j), terms.pop(i)
        terms.append(_contract(first, second, output.union(*(t.labels for t in terms))))
    return terms[0].without({m for m in terms[0].labels if m not in output}).arranged(parsed.output)


@public
def einsum(equation: str, *operands):
    """Sums of products, written with a letter per axis: what is left out after `->` is summed, a letter twice in one operand takes
    the diagonal, `...` stands for any axes, which broadcast. Pairs are multiplied in a cheap order, as matrices where possible.

    >>> td.einsum("ij,jk->ik", td.ones(2, 3), td.ones(3, 2))
    tensor([[3., 3.],
            [3., 3.]])
    """
    if len(operands) == 1 and isinstance(operands[0], (tuple, list)):
        operands = tuple(operands[0])
    if not isinstance(equation, str):
        raise ValueRangeError(
            "einsum", f"the equation is a {type(equation).__name__}; it must be a string such as 'ij,jk->ik'"
        )
    if not operands:
        raise ValueRangeError("einsum", "no operands were given")
    return _einsum(list(operands), equation)


@op
def tensordot(x: Tensor, y: Tensor, axes=2):
    """Sum over the last `axes` axes of x and the first of y, or over pairs of axes: ((axes of x), (axes of y)).

    >>> td.tensordot(td.ones(2, 3, 4), td.ones(3, 4, 5)).shape
    (2, 5)
    """
    if isinstance(axes, int):
        if not 0 <= axes <= min(x.ndim, y.ndim):
            raise ValueRangeError("tensordot", f"axes is {axes}; x has {x.ndim} axes and y {y.ndim}")
        of_x, of_y = tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes))
    else:
        of_x, of_y = ((a,) if isinstance(a, int) else tuple(a) for a in axes)
        of_x = tuple(normalize_axis("tensordot", a, x.ndim) for a in of_x)
        of_y = tuple(normalize_axis("tensordot", a, y.ndim) for a in of_y)
    if len(of_x) != len(of_y) or any(x.shape[a] != y.shape[b] for a, b in zip(of_x, of_y, strict=False)):
        raise ShapeError(
            "tensordot",
            f"axes {of_x} of x {show_shape(x.shape)} and {of_y} of y {show_shape(y.shape)} must have equal sizes",
        )
    x, y = promote(x, y)
    labels_x, labels_y = list(range(x.ndim)), [x.ndim + i for i in range(y.ndim)]
    for a, b in zip(of_x, of_y, strict=True):
        labels_y[b] = labels_x[a]
    kept = [m for m in labels_x if m not in labels_y] + [m for m in labels_y if m not in labels_x]
    return _contract(_Term(x, labels_x), _Term(y, labels_y), set(kept)).arranged(kept)
