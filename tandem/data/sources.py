"""Datasets on files: arrays, tables, images, text. Paths may be those of fsspec: local ones, memory://..., s3://..."""

from __future__ import annotations

import csv
import io
import mmap
import os

from tandem import _runtime
from tandem.data.collate import empty
from tandem.data.dataset import Dataset, IterableDataset
from tandem.errors import DTypeError, IndexRangeError, ShapeError, UnsupportedError, ValueRangeError
from tandem.tensors.constructors import asarray

_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


def need(package: str, what: str):
    """Imports an optional package; says how to get it if it is missing."""
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        name = {"PIL.Image": "pillow"}.get(package, package.partition(".")[0])
        raise UnsupportedError(
            "data", f"{what} needs the package {name}", fix=f"pip install {name}, or 'tandem-dl[data]'"
        ) from None


def is_url(path) -> bool:
    """Whether a path is one for fsspec."""
    return isinstance(path, str) and "://" in path


def open_file(path, mode: str = "rb"):
    """A file, local or wherever fsspec reaches.

    >>> with td.data.sources.open_file("memory://a.txt", "wb") as file:
    ...     _ = file.write(b"text")
    >>> td.data.sources.open_file("memory://a.txt").read()
    b'text'
    """
    if not is_url(path):
        return open(path, mode)
    return need("fsspec", f"the path {path}").open(path, mode).open()


def list_files(folder, endings: tuple[str, ...] = ()) -> list[str]:
    """All files below a folder, in order of their names."""
    if is_url(folder):
        system, path = need("fsspec", f"the path {folder}").core.url_to_fs(folder)
        found = [system.unstrip_protocol(name) for name in system.find(path)]
    else:
        folder = os.fspath(folder)
        if not os.path.isdir(folder):
            raise FileNotFoundError(2, "No such folder", folder)
        found = [os.path.join(place, name) for place, _, names in os.walk(folder, followlinks=True) for name in names]
    return sorted(name for name in found if not endings or name.lower().endswith(endings))


class ArrayDataset(Dataset):
    """Rows of arrays with the same first size: NumPy arrays, memory maps, or names of .npy files, which are mapped.

    Batches are read at once; a map stays on the disk, and workers map the file themselves.

    >>> import numpy as np
    >>> data = td.data.sources.ArrayDataset(np.arange(6).reshape(3, 2), np.zeros(3))
    >>> data[1]
    (tensor([2, 3]), tensor(0., dtype=float64))
    """

    makes_batches = True
    draws = False

    def __init__(self, *arrays):
        import numpy

        if not arrays:
            raise ValueRangeError("ArrayDataset", "there are no arrays")
        self.arrays = [numpy.load(a, mmap_mode="r") if isinstance(a, (str, os.PathLike)) else a for a in arrays]
        if len({len(a) for a in self.arrays}) > 1:
            raise ShapeError(
                "ArrayDataset", f"the arrays have {[len(a) for a in self.arrays]} rows; they need the same number"
            )

    def __getitem__(self, index):
        import numpy

        return tuple(_runtime.from_numpy(numpy.array(a[index])) for a in self.arrays)

    def __getitems__(self, indices):
        return tuple(_runtime.from_numpy(a[indices]) for a in self.arrays)

    def __len__(self):
        return len(self.arrays[0])

    def __getstate__(self):
        import numpy

        # A map of a file travels as its name: pickling would read all of it.
        def describe(a):
            if isinstance(a, numpy.memmap) and a.filename is not None and isinstance(a.base, mmap.mmap):
                return (
                    "map",
                    str(a.filename),
                    a.dtype,
                    a.shape,
                    a.offset,
                    "F" if a.flags.f_contiguous and a.ndim > 1 else "C",
                )
            return ("array", a)

        return {"arrays": [describe(a) for a in self.arrays]}

    def __setstate__(self, state):
        import numpy

        def rebuild(kind, *rest):
            if kind == "array":
                return rest[0]
            name, dtype, shape, offset, order = rest
            return numpy.memmap(name, dtype, "r", offset, shape, order)

        self.arrays = [rebuild(*description) for description in state["arrays"]]


class ArrowDataset(Dataset):
    """Rows of an Arrow table, or of Parquet or Feather files: dicts of columns, or tuples of those in `columns`.

    Columns of numbers give tensors, a batch at a time without a copy per row; others give Python values.

    >>> import pyarrow
    >>> data = td.data.sources.ArrowDataset(pyarrow.table({"x": [1.0, 2.0], "name": ["a", "b"]}))
    >>> data[1]
    {'x': 2.0, 'name': 'b'}
    """

    makes_batches = True
    draws = False

    def __init__(self, source, columns: list[str] | None = None):
        need("pyarrow", "a table")
        import pyarrow

        if isinstance(source, pyarrow.Table):
            table = source
        else:
            sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
            table = pyarrow.concat_tables([_read_table(s, columns) for s in sources])
        missing = [c for c in columns or () if c not in table.column_names]
        if missing:
            raise IndexRangeError(
                "ArrowDataset", f"there is no column {', '.join(missing)}; there are {', '.join(table.column_names)}"
            )
        self.columns = columns
        self.table = (table if columns is None else table.select(columns)).combine_chunks()

    def _row(self, values: dict):
        return values if self.columns is None else tuple(values[c] for c in self.columns)

    def __getitem__(self, index):
        if not -len(self) <= index < len(self):
            raise IndexRangeError("ArrowDataset", f"index {index} is out of range for {len(self)} rows")
        row = self.table.slice(index % len(self), 1)
        return self._row({name: row.column(name)[0].as_py() for name in row.column_names})

    def __getitems__(self, indices):
        rows = self.table.take(indices)
        return self._row({name: _column(rows.column(name)) for name in rows.column_names})

    def __len__(self):
        return self.table.num_rows


def _read_table(source, columns):
    name = str(source).lower()
    with open_file(source) as file:
        if name.endswith((".feather", ".arrow")):
            return need("pyarrow.feather", "a Feather file").read_table(file, columns=columns)
        if name.endswith(".csv"):
            return need("pyarrow.csv", "a CSV file").read_csv(file)
        return need("pyarrow.parquet", "a Parquet file").read_table(file, columns=columns)


def _column(column):
    """A column of numbers as a tensor, one of equal lists of numbers as a matrix, anything else as a list."""
    import numpy
    import pyarrow

    kind = column.type
    if pyarrow.types.is_fixed_size_list(kind) or pyarrow.types.is_list(kind):
        rows = column.to_pylist()
        if rows and all(r is not None and len(r) == len(rows[0]) for r in rows) and _is_number(kind.value_type):
            return _runtime.from_numpy(numpy.array(rows, kind.value_type.to_pandas_dtype()))
        return rows
    if _is_number(kind) and column.null_count == 0:
        return _runtime.from_numpy(numpy.array(column.to_numpy()))
    return column.to_pylist()


def _is_number(kind) -> bool:
    import pyarrow

    return pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)


class CSVDataset(Dataset):
    """Rows of a CSV file. Columns whose every value is a number are numbers; rows are dicts, or tuples of those in `columns`.

    >>> with td.data.sources.open_file("memory://t.csv", "wb") as file:
    ...     _ = file.write(b"x,name\\n1.5,a\\n2,b\\n")
    >>> list(td.data.sources.CSVDataset("memory://t.csv"))
    [{'x': 1.5, 'name': 'a'}, {'x': 2.0, 'name': 'b'}]
    """

    draws = False

    def __init__(
        self, path, columns: list[str] | None = None, delimiter: str = ",", header: bool = True, encoding: str = "utf-8"
    ):
        with open_file(path) as file:
            rows = list(csv.reader(io.StringIO(file.read().decode(encoding), newline=""), delimiter=delimiter))
        rows = [row for row in rows if row]
        if not rows:
            raise ValueRangeError("CSVDataset", f"{path} has no rows")
        names = rows.pop(0) if header else [str(i) for i in range(len(rows[0]))]
        for number, row in enumerate(rows):
            if len(row) != len(names):
                raise ShapeError(
                    "CSVDataset", f"{path}: row {number} has {len(row)} fields, there are {len(names)} columns"
                )
        missing = [c for c in columns or () if c not in names]
        if missing:
            raise IndexRangeError("CSVDataset", f"{path} has no column {', '.join(missing)}; it has {', '.join(names)}")
        self.columns = columns
        self.table = {
            name: _typed([row[i] for row in rows]) for i, name in enumerate(names) if columns is None or name in columns
        }
        self._length = len(rows)

    def __getitem__(self, index):
        row = {name: values[index] for name, values in self.table.items()}
        return row if self.columns is None else tuple(row[c] for c in self.columns)

    def __len__(self):
        return self._length


def _typed(values: list[str]) -> list:
    for kind in (int, float):
        try:
            return [kind(v) for v in values]
        except ValueError:
            continue
    return values


class ImageFolder(Dataset):
    """Images in folders that are their classes: root/cat/1.png, root/dog/a/2.jpg; samples are (image, number of class).

    transform, target_transform: applied to image and class. loader: reads an image from a path; PIL's unless given.

    `classes` has the names in order; `samples` the paths with their class.
    """

    def __init__(self, root, transform=None, target_transform=None, loader=None, extensions: tuple[str, ...] = _IMAGES):
        self.root = str(root).rstrip("/")
        self.transform, self.target_transform, self.loader = transform, target_transform, loader or load_image
        paths = list_files(root, tuple(extensions))
        base = self.root if is_url(self.root) else os.path.abspath(self.root)
        classes = {p: self._class_of(p if is_url(self.root) else os.path.abspath(p), base) for p in paths}
        self.classes = sorted({c for c in classes.values() if c is not None})
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.samples = [(p, self.class_to_idx[c]) for p, c in classes.items() if c is not None]
        self.targets = [label for _, label in self.samples]
        if not self.samples:
            raise ValueRangeError(
                "ImageFolder", f"{root} has no images in folders", fix=f"images end in {', '.join(extensions)}"
            )

    @staticmethod
    def _class_of(path: str, base: str) -> str | None:
        if is_url(base):
            path, base = path.partition("://")[2].lstrip("/"), base.partition("://")[2].lstrip("/")
        inside = path[len(base) :].lstrip("/").split("/")
        return inside[0] if len(inside) > 1 else None

    def __getitem__(self, index):
        path, label = self.samples[index]
        image = self.loader(path)
        if self.transform is not None:
            image = self.transform(image)
        return image, label if self.target_transform is None else self.target_transform(label)

    def __len__(self):
        return len(self.samples)


def load_image(path, mode: str = "RGB"):
    """A PIL image, read whole."""
    images = need("PIL.Image", "reading images")
    with open_file(path) as file:
        return images.open(file).convert(mode)


class TextLines(IterableDataset):
    """Lines of text files one after the other, without their ends; empty ones left out unless keep_empty.

    >>> with td.data.sources.open_file("memory://lines.txt", "wb") as file:
    ...     _ = file.write(b"one\\ntwo\\n")
    >>> list(td.data.sources.TextLines("memory://lines.txt"))
    ['one', 'two']
    """

    def __init__(self, paths, encoding: str = "utf-8", keep_empty: bool = False):
        self.paths = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        self.encoding, self.keep_empty = encoding, keep_empty

    def __iter__(self):
        for path in self.paths:
            with open_file(path) as file:
                for line in io.TextIOWrapper(file, self.encoding):
                    line = line.rstrip("\r\n")
                    if line or self.keep_empty:
                        yield line


class TokenBlocks(Dataset):
    """A long row of tokens cut into blocks for language models: (block, the same moved on by one).

    step: tokens from one block's start to the next; `length` unless given

    >>> td.data.sources.TokenBlocks(td.arange(10), 4)[1]
    (tensor([4, 5, 6, 7]), tensor([5, 6, 7, 8]))
    """

    makes_batches = True
    draws = False

    def __init__(self, tokens, length: int, step: int | None = None):
        self.tokens, self.length, self.step = asarray(tokens).contiguous(), length, step or length
        if self.tokens.ndim != 1 or self.tokens.dtype.kind not in ("int", "uint"):
            raise DTypeError(
                "TokenBlocks",
                f"tokens are one row of whole numbers, not {self.tokens.dtype} {tuple(self.tokens.shape)}",
            )
        if self.tokens.shape[0] <= length:
            raise ShapeError("TokenBlocks", f"{self.tokens.shape[0]} tokens have no block of {length} and one more")

    def __getitem__(self, index):
        if not -len(self) <= index < len(self):
            raise IndexRangeError("TokenBlocks", f"index {index} is out of range for {len(self)} blocks")
        start = index % len(self) * self.step
        return self.tokens[start : start + self.length], self.tokens[start + 1 : start + 1 + self.length]

    def __getitems__(self, indices):
        # All blocks as overlapping rows of one matrix: a batch is its rows at the indices.
        rows = _runtime.alias(self.tokens, (len(self), self.length + 1), (self.step, 1), self.tokens.storage_offset())
        both = _runtime.take_rows(rows, indices, empty((len(indices), self.length + 1), self.tokens.dtype))
        return both[:, :-1], both[:, 1:]

    def __len__(self):
        return (self.tokens.shape[0] - self.length - 1) // self.step + 1


__all__ = [
    "ArrayDataset",
    "ArrowDataset",
    "CSVDataset",
    "ImageFolder",
    "TextLines",
    "TokenBlocks",
    "list_files",
    "load_image",
    "open_file",
]
