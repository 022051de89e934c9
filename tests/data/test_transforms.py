"""Transforms of images and text."""

import colorsys
import pickle
import random

import numpy as np
import pytest

import tandem as td
from tandem.data import transforms as T

PIL = pytest.importorskip("PIL.Image")


def picture(height=11, width=8):
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def forms(array):
    """One image as a tensor, as an array, and of PIL."""
    channels_first = np.ascontiguousarray(array.transpose(2, 0, 1))
    return td.from_numpy(channels_first.copy()), channels_first, PIL.fromarray(array)


def back(image):
    """An image of any form as an array (height, width, channels)."""
    if isinstance(image, td.Tensor):
        return image.numpy().transpose(1, 2, 0)
    if isinstance(image, np.ndarray):
        return image.transpose(1, 2, 0)
    return np.asarray(image)


@pytest.mark.parametrize(
    "transform",
    [
        T.CenterCrop(5), T.CenterCrop(15), T.Pad((1, 2, 3, 4), fill=7), T.Pad(2, mode="reflect"), T.RandomCrop(6, padding=2),
        T.RandomCrop((12, 3), pad_if_needed=True), T.RandomHorizontalFlip(1.0), T.RandomVerticalFlip(1.0), T.RandomRotation(30),
        T.RandomErasing(1.0, value=9), T.Resize(5, "nearest"),
    ],
    ids=lambda t: type(t).__name__,
)  # fmt: skip
def test_all_forms_of_an_image_are_treated_alike(transform):
    found = []
    for image in forms(picture()):
        random.seed(4)
        result = transform(image)
        assert type(result) is type(image) or isinstance(result, PIL.Image)
        found.append(back(result))
    assert np.array_equal(found[0], found[1])
    if not (isinstance(transform, T.Resize)):  # PIL's nearest rounds differently
        assert np.array_equal(found[0], found[2])


def test_flips_and_crops_by_hand():
    image = td.arange(12).reshape(1, 3, 4)
    assert [[[3, 2, 1, 0], [7, 6, 5, 4], [11, 10, 9, 8]]] == T.RandomHorizontalFlip(1.0)(image).tolist()
    assert [[[8, 9, 10, 11], [4, 5, 6, 7], [0, 1, 2, 3]]] == T.RandomVerticalFlip(1.0)(image).tolist()
    assert image is T.RandomVerticalFlip(0.0)(image)
    assert [[[5, 6]]] == T.CenterCrop((1, 2))(image).tolist()
    tops = {tuple(T.RandomCrop(1)(image).flatten().tolist()) for _ in range(200)}
    assert 12 == len(tops)  # every place comes


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(5, 4), (22, 17), (3, 16)])
def test_resize_is_as_pil_has_it(interpolation, size):
    array = picture(16, 12) // 2 + 64  # far from the ends, where PIL cuts off between its passes
    ours = back(T.Resize(size, interpolation)(forms(array)[0])).astype(int)
    theirs = back(T.Resize(size, interpolation)(PIL.fromarray(array))).astype(int)
    assert np.abs(ours - theirs).max() <= 1  # PIL computes with 8 bits


def test_resize_by_the_shorter_side():
    assert (3, 6, 10) == T.Resize(6)(td.zeros(3, 12, 20)).shape
    constant = T.Resize((7, 9))(td.full((1, 20, 30), 0.25))
    assert np.allclose(0.25, constant.numpy())


def test_random_resized_crop_covers_sizes():
    image = td.rand(3, 20, 10)
    for _ in range(20):
        assert (3, 8, 8) == T.RandomResizedCrop(8)(image).shape
    assert (3, 4, 4) == T.RandomResizedCrop(4, scale=(1.0, 1.0))(td.rand(3, 2, 40)).shape


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


def test_hue_is_turned_as_colorsys_has_it():
    image = np.random.default_rng(1).random((3, 4, 5))
    turned = T.ColorJitter(hue=(0.2, 0.2))(image)
    for y in range(4):
        for x in range(5):
            h, s, v = colorsys.rgb_to_hsv(*image[:, y, x])
            assert np.allclose(colorsys.hsv_to_rgb((h + 0.2) % 1, s, v), turned[:, y, x])


def test_brightness_contrast_saturation():
    image = np.random.default_rng(2).random((3, 4, 5)) * 0.5
    grey = np.tensordot([0.299, 0.587, 0.114], image, 1)
    assert np.allclose(image * 1.5, T.ColorJitter(brightness=(1.5, 1.5))(image))
    assert np.allclose(np.clip((image - grey.mean()) * 2 + grey.mean(), 0, 1), T.ColorJitter(contrast=(2, 2))(image))
    assert np.allclose(np.broadcast_to(grey, (3, 4, 5)), T.ColorJitter(saturation=(0, 0))(image))
    assert np.allclose(grey[None], T.Grayscale()(image))
    colours = T.ColorJitter(0.5, 0.5, 0.5, 0.3)(td.from_numpy((image * 255).astype(np.uint8)))
    assert td.uint8 is colours.dtype
    with pytest.raises(ValueError, match="hue"):
        T.ColorJitter(hue=0.6)
    with pytest.raises(ValueError, match="no 3 channels"):
        T.ColorJitter(0.5)(td.zeros(1, 2, 2))


def test_erasing_changes_one_rectangle_and_not_the_original():
    image = td.ones(3, 20, 20)
    erased = T.RandomErasing(1.0)(image)
    assert 1200.0 == float(image.sum())
    zeros = erased.numpy()[0] == 0
    rows, columns = np.where(zeros.any(1))[0], np.where(zeros.any(0))[0]
    assert zeros[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
    assert not np.array_equal(T.RandomErasing(1.0, value="random")(image).numpy(), image.numpy())


def test_rotation_by_right_angles():
    image = td.rand(3, 5, 5)
    for quarter in range(4):
        turned = T.RandomRotation((90 * quarter, 90 * quarter))(image)
        assert np.array_equal(np.rot90(image.numpy(), quarter, (-2, -1)), turned.numpy())


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


def test_characters():
    encode = T.Characters("abc?", unknown="?")
    assert [0, 2, 3] == encode("acz").tolist()
    assert "ac?" == encode.decode(encode("acz"))
    assert (0,) == encode("").shape
    with pytest.raises(ValueError, match="'z' is not in the vocabulary"):
        T.Characters("ab")("z")


def test_tokenize(tmp_path):
    pytest.importorskip("tokenizers")
    tokenize = T.Tokenize.train(["the cat sat", "the mat"] * 5, vocab_size=40, length=12)
    assert (12,) == tokenize("the cat").shape
    path = tmp_path / "tokens.json"
    tokenize._tokenizer.save(str(path))
    again = T.Tokenize(str(path))
    assert "the cat" == again.decode(again("the cat"))
    assert again("the cat").tolist() == pickle.loads(pickle.dumps(again))("the cat").tolist()
