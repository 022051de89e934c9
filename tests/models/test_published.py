"""Names and shapes of weights are those of published checkpoints: of torchvision 0.29 and of transformers 5,
as these packages make them.

A digest stands for the sorted list of names and shapes. tests/oracle/test_published.py compares with the packages themselves.
"""

import hashlib

import pytest

import tandem as td
from tandem import models

TORCHVISION = {
    "alexnet": (16, "935c1ea73a7869ee", models.AlexNet),
    "vgg11": (22, "b11acd4f90d9643f", models.vgg11),
    "vgg13": (26, "79ca8fd7a1480aa7", models.vgg13),
    "vgg16": (32, "ba63c2556d912509", models.vgg16),
    "vgg19": (38, "393fac8b08b63fbe", models.vgg19),
    "inception_v3": (580, "4c9e13f64584de74", models.InceptionV3),
    "resnet18": (122, "5191d63ec3989592", models.resnet18),
    "resnet34": (218, "f8de2a1812ef85e4", models.resnet34),
    "resnet50": (320, "a87e91cd6bd1f939", models.resnet50),
    "resnet101": (626, "dbc3ca74fffafc72", models.resnet101),
    "mobilenet_v2": (314, "e3eb10f890f74c6e", models.MobileNetV2),
    "vit_b_16": (152, "2c2360f6707280a8", models.vit_b_16),
    "vit_b_32": (152, "5d993f6a7cca84cf", models.vit_b_32),
    "vit_l_16": (296, "bf0dacece57186c9", models.vit_l_16),
}
SMALL = {"resnet18", "resnet50", "inception_v3", "mobilenet_v2"}  # made in an instant


def digest(shapes: dict) -> tuple[int, str]:
    text = "\n".join(f"{name} {tuple(shape)}" for name, shape in sorted(shapes.items()))
    return len(shapes), hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", [n if n in SMALL else pytest.param(n, marks=pytest.mark.slow) for n in TORCHVISION])
def test_torchvision(name):
    *expected, make = TORCHVISION[name]
    assert digest({k: v.shape for k, v in make().state_dict().items()}) == tuple(expected)


@pytest.mark.slow
def test_bert():
    assert digest({k: v.shape for k, v in models.BERT().state_dict().items()}) == (199, "7c984fc4b78ff000")


@pytest.mark.slow
def test_gpt2():
    shapes = {"lm_head.weight": (50257, 768)}
    for name, value in models.gpt2().state_dict().items():
        turned = name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))
        shapes["transformer." + name] = value.shape[::-1] if turned else value.shape
    assert digest(shapes) == (149, "70c5d03877850dde")


def test_bert_takes_checkpoints_for_other_tasks():
    model, other = models.BERT(11, 8, 1, 2, positions=8), models.BERT(11, 8, 1, 2, positions=8)
    old = {".LayerNorm.weight": ".LayerNorm.gamma", ".LayerNorm.bias": ".LayerNorm.beta"}
    published = {"cls.predictions.bias": td.zeros(11), "bert.embeddings.position_ids": td.arange(8)}
    for name, value in model.state_dict().items():
        for new, before in old.items():
            name = name.replace(new, before)
        published["bert." + name] = value
    other.load_published(published)
    assert all((a == b).all() for a, b in zip(model.parameters(), other.parameters(), strict=True))
    published.pop("bert.pooler.dense.bias")
    with pytest.raises(RuntimeError, match=r"pooler\.dense\.bias"):
        other.load_published(published)
