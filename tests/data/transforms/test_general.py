"""Transforms of anything, and conversions."""

import pickle

import numpy as np
import pytest

import tandem as td
from tandem.data import transforms as T

PIL = pytest.importorskip("PIL.Image")


def picture(height=11, width=8):
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def test_to_tensor_and_normalize():
    array = picture()
    tensor = T.ToTensor()(PIL.fromarray(array))
    assert np.allclose(array.transpose(2, 0, 1) / 255, tensor.numpy())
    assert (1, 11, 8) == T.ToTensor()(PIL.fromarray(array[..., 0])).shape
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    normal = pickle.loads(pickle.dumps(T.Normalize(mean, std)))(tensor)
    expected = (tensor.numpy() - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    assert np.allclose(expected, normal.numpy(), atol=1e-6)
    with pytest.raises(ValueError, match="fractions are needed"):
        T.Normalize(0.5, 0.5)(td.zeros(3, 2, 2, dtype=td.uint8))
    with pytest.raises(ValueError, match="2 means and 3 channels"):
        T.Normalize((0.5, 0.5), 0.5)(td.zeros(3, 2, 2))


def test_conversion_between_whole_numbers_and_fractions():
    every = td.arange(256).to(td.uint8).reshape(16, 16)
    there = T.ConvertDtype(td.float32)(every)
    assert (0.0, 1.0) == (float(there.min()), float(there.max()))
    assert every.tolist() == T.ConvertDtype(td.uint8)(there).tolist()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: T.CenterCrop(0), "size 0"),
        (lambda: T.Pad(-1), "padding=-1"),
        (lambda: T.Pad(1, mode="x"), "mode='x'"),
        (lambda: T.RandomCrop(5)(td.zeros(1, 2, 2)), "has no part of 5 x 5"),
        (lambda: T.Resize(3, "odd")(td.zeros(1, 9, 9)), "interpolation='odd'"),
        (lambda: T.Grayscale(2), "num_output_channels=2"),
        (lambda: T.CenterCrop(1)(td.zeros(3)), "no height and width"),
    ],
)
def test_settings_that_make_no_sense(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_augmentation_in_a_loader_depends_on_seed_epoch_and_index_only():
    augment = T.Compose([T.RandomCrop(6, padding=1), T.RandomHorizontalFlip(), T.ColorJitter(0.3)])
    data = td.data.MapDataset(td.rand(8, 3, 8, 8, generator=td.Generator(0)), augment)
    runs = [[b.tolist() for b in td.data.DataLoader(data, batch_size=4, seed=1, num_workers=n)] for n in (0, 2)]
    threads = td.data.DataLoader(data, batch_size=4, seed=1, num_workers=2, worker_type="thread")
    assert runs[0] == runs[1] == [b.tolist() for b in threads]
    assert runs[0] != [b.tolist() for b in td.data.DataLoader(data, batch_size=4, seed=2)]
