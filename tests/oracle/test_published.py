"""Models of the zoo with weights of torchvision's and transformers' models give what those give."""

import numpy as np
import pytest

import tandem as td
from tandem import models
from tests.models.test_published import TORCHVISION, digest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle
COMPARED = ("alexnet", "vgg11", "resnet18", "resnet50", "mobilenet_v2", "inception_v3", "vit_b_32")


def package(name: str):
    try:
        return __import__(name, fromlist=["_"])
    except Exception as error:  # a torchvision without its extension fails in many ways
        pytest.skip(f"{name}: {error}")


def perturbed(model):
    """No weight is left at a value that would hide a mistake, such as the zeros of a last layer."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    for p in model.parameters():
        p.data.add_(torch.randn_like(p) * (0.01 if p.ndim > 1 else 0.05))
    return model.eval()


def state(model) -> dict:
    return {k: td.from_numpy(v.detach().numpy()) for k, v in model.state_dict().items()}


def close(ours, theirs):
    theirs = theirs.detach().numpy()
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision(name):
    made = package("torchvision.models")
    count, expected, make = TORCHVISION[name]
    settings = {"init_weights": True} if name == "inception_v3" else {}
    with torch.device("meta"):
        theirs = getattr(made, name)(**{**settings, **({"init_weights": False} if settings else {})})
    assert digest({k: v.shape for k, v in theirs.state_dict().items()}) == (count, expected)
    if name not in COMPARED:
        return
    theirs, ours = perturbed(getattr(made, name)(**settings)), make().eval()
    ours.load_state_dict(state(theirs))
    size = 299 if name == "inception_v3" else 224
    x = torch.randn(1, 3, size, size)
    with torch.no_grad(), td.no_grad():
        close(ours(td.from_numpy(x.numpy())), theirs(x))


def test_bert():
    made = package("transformers")
    config = made.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=16,
    )  # fmt: skip
    theirs, ours = perturbed(made.BertModel(config)), models.BERT(50, 32, 2, 4, inner=64, positions=16).eval()
    ours.load_published(state(theirs))
    tokens, mask = torch.randint(0, 50, (2, 7)), torch.ones(2, 7, dtype=torch.long)
    mask[1, 5:] = 0
    found = theirs(tokens, attention_mask=mask)
    whole, pooled = ours(td.from_numpy(tokens.numpy()), td.from_numpy(mask.numpy()))
    close(whole[0], found.last_hidden_state[0])
    close(whole[1, :5], found.last_hidden_state[1, :5])
    close(pooled, found.pooler_output)


def test_gpt2():
    made = package("transformers")
    config = made.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    theirs, ours = perturbed(made.GPT2LMHeadModel(config)), models.GPT2(50, 16, 2, 4, 32).eval()
    ours.load_published(state(theirs))
    tokens = torch.randint(0, 50, (2, 7))
    close(ours(td.from_numpy(tokens.numpy())), theirs(tokens).logits)
