"""The model zoo: parameter counts as published, compiled = eager, and losses that fall."""

import numpy as np
import pytest

import tandem as td
from tandem import models
from tandem.nn import functional as F

COUNTS = {
    "LeNet": (models.LeNet, 61_706),
    "resnet18": (models.resnet18, 11_689_512),
    "resnet34": (models.resnet34, 21_797_672),
    "resnet50": (models.resnet50, 25_557_032),
    "MobileNetV1": (models.MobileNetV1, 4_231_976),
    "MobileNetV2": (models.MobileNetV2, 3_504_872),
    "InceptionV3": (models.InceptionV3, 27_161_264),
}
LARGE = {
    "AlexNet": (models.AlexNet, 61_100_840),
    "vgg11": (models.vgg11, 132_863_336),
    "vgg16": (models.vgg16, 138_357_544),
    "vgg19": (models.vgg19, 143_667_240),
    "resnet101": (models.resnet101, 44_549_160),
    "gpt2": (models.gpt2, 124_439_808),
    "BERT": (models.BERT, 109_482_240),
    "vit_b_16": (models.vit_b_16, 86_567_656),
}


def count(model) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts(name):
    make, expected = COUNTS[name]
    assert count(make()) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_parameter_counts_of_large_models(name):
    make, expected = LARGE[name]
    assert count(make()) == expected


# -- training at small size: (model, inputs, loss)


def whole(high, *shape):
    return td.tensor(np.random.default_rng(1).integers(0, high, shape))


def images(n, size, channels=3):
    return td.tensor(np.random.default_rng(2).normal(size=(n, channels, size, size)).astype(np.float32))


def classifier(model, x, classes=4):
    y = whole(classes, x.shape[0])
    return model, lambda: F.cross_entropy(model(x), y)


def language(model, tokens, predict):
    return model, lambda: F.cross_entropy(predict(tokens).reshape(-1, 11), tokens.reshape(-1))


def lenet():
    return classifier(models.LeNet(4), images(6, 28, 1))


def alexnet():
    return classifier(models.AlexNet(4, dropout=0.0), images(2, 64))


def vgg():
    return classifier(models.VGG(11, 4, batch_norm=True, dropout=0.0, width=16), images(2, 32))


def resnet():
    return classifier(models.ResNet(models.resnet.BasicBlock, (1, 1, 1, 1), 4, width=8), images(4, 32))


def bottleneck():
    return classifier(models.ResNet(models.resnet.Bottleneck, (1, 1, 1, 1), 4, width=8), images(4, 32))


def mobilenet_v1():
    # 2 x 2 positions at the end: statistics over fewer make every rounding error a hundred times larger from step to step.
    return classifier(models.MobileNetV1(4, width=0.25), images(8, 64))


def mobilenet_v2():
    return classifier(models.MobileNetV2(4, width=0.25, dropout=0.0), images(8, 64))


def vit():
    return classifier(models.ViT(16, 4, 16, 2, 2, 32, 4), images(4, 16))


def lstm():
    model = models.LSTMLanguageModel(11, 12)
    return language(model, whole(11, 5, 3), lambda t: model(t)[0])


def gnmt():
    model = models.GNMT(11, 8, 3, dropout=0.0)
    source = whole(11, 6, 3)
    return language(model, whole(11, 5, 3), lambda t: model(source, t))


def gpt2():
    model = models.GPT2(11, 8, 2, 2, 8, dropout=0.0)
    return language(model, whole(11, 2, 6), model)


def bert():
    model = models.BERT(11, 8, 2, 2, positions=8, dropout=0.0)
    mask = td.tensor([[1] * 6, [1] * 4 + [0] * 2])
    head = td.nn.Linear(8, 11)
    return language(model, whole(11, 2, 6), lambda t: head(model(t, mask)[0]))


def ncf():
    model = models.NCF(20, 30, 4, (16, 8, 4))
    user, item, target = whole(20, 16), whole(30, 16), whole(2, 16).to(td.float32)
    return model, lambda: F.binary_cross_entropy_with_logits(model(user, item), target)


def dcgan():
    noise = td.tensor(np.random.default_rng(0).normal(size=(2, 6, 1, 1)).astype(np.float32))
    generator, discriminator = models.Generator(6, 4, 1), models.Discriminator(4, 1)
    return generator, lambda: F.binary_cross_entropy_with_logits(discriminator(generator(noise)), td.ones(2))


EDGES = td.tensor([[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3]])


def gcn():
    model = models.GCN(5, 6, 3, dropout=0.0)
    x, y = images(4, 1, 5).reshape(4, 5), whole(3, 4)
    return model, lambda: F.cross_entropy(model(x, EDGES), y)


def gat():
    model = models.GAT(5, 4, 3, 2, dropout=0.0)
    x, y = images(4, 1, 5).reshape(4, 5), whole(3, 4)
    return model, lambda: F.cross_entropy(model(x, EDGES), y)


def tree_lstm():
    model = models.TreeLSTM(7, 6, 6, 3)
    tree = models.Tree(
        children=[models.Tree(1), models.Tree(children=[models.Tree(2), models.Tree(3), models.Tree(1)])]
    )
    return model, lambda: F.cross_entropy(model(tree), td.tensor([2]))


SMALL = [
    lenet, alexnet, vgg, resnet, bottleneck, mobilenet_v1, vit, lstm, gnmt, gpt2, bert, ncf, dcgan, gcn, gat, tree_lstm,
    pytest.param(mobilenet_v2, marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.parametrize("make", SMALL, ids=lambda f: f.__name__)
def test_compiled_is_eager_and_the_loss_falls(make):
    def losses(compiled: bool) -> list[float]:
        td.manual_seed(0)
        model, loss_of = make()
        optimizer = td.optim.Adam(model.parameters(), lr=5e-4)  # larger steps amplify every bit in some of these

        def step():
            loss = loss_of()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        step = td.compile(step) if compiled else step
        return [step().item() for _ in range(10)]

    eager = losses(False)
    np.testing.assert_allclose(losses(True)[:4], eager[:4], rtol=2e-3, atol=1e-5)
    assert eager[-1] < eager[0]


# -- what particular models promise


def test_gpt2_generates_the_same_with_and_without_what_it_remembers():
    td.manual_seed(0)
    model = models.GPT2(11, 12, 2, 2, 8).eval()
    start = whole(11, 2, 3)
    tokens = model.generate(start, 6, temperature=0)
    assert tokens.shape == (2, 9)
    for t in range(3, 9):
        expected = model(tokens[:, :t])[:, -1].argmax(-1)
        assert tokens[:, t].tolist() == expected.tolist()
    drawn = model.generate(start, 12, top_k=3)  # past its context
    assert drawn.shape == (2, 15)


def test_gpt2_takes_published_weights():
    model, other = models.GPT2(11, 8, 1, 2, 8).eval(), models.GPT2(11, 8, 1, 2, 8).eval()
    published = {"lm_head.weight": model.wte.weight.detach(), "transformer.h.0.attn.bias": td.ones(1, 1, 8, 8)}
    for name, value in model.state_dict().items():
        turned = name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))
        published["transformer." + name] = value.T if turned else value
    other.load_published(published)
    tokens = whole(11, 1, 5)
    np.testing.assert_array_equal(other(tokens).detach().numpy(), model(tokens).detach().numpy())


def test_bert_looks_away_from_padding():
    td.manual_seed(0)
    model = models.BERT(11, 8, 1, 2, positions=8).eval()
    mask = td.tensor([[1, 1, 1, 0]])
    a, _ = model(td.tensor([[1, 2, 3, 4]]), mask)
    b, _ = model(td.tensor([[1, 2, 3, 9]]), mask)
    np.testing.assert_allclose(a[:, :3].detach().numpy(), b[:, :3].detach().numpy(), rtol=1e-6)


def test_gnmt_translates_until_the_end():
    td.manual_seed(0)
    model = models.GNMT(11, 8, 3).eval()
    assert 1 <= model.translate(whole(11, 6, 3), start=0, end=1, longest=7).shape[0] <= 7


def test_inception_has_auxiliary_scores_while_training():
    model = models.InceptionV3(5).eval()
    with td.no_grad():
        assert model(images(1, 75)).shape == (1, 5)


def test_gcn_is_the_formula():
    conv = models.GCNConv(5, 3)
    x = images(4, 1, 5).reshape(4, 5)
    adjacency = np.eye(4)
    for a, b in EDGES.numpy().T:
        adjacency[b, a] += 1
    root = adjacency.sum(1) ** -0.5
    expected = (root[:, None] * adjacency * root[None]) @ (x.numpy() @ conv.lin.weight.detach().numpy().T)
    np.testing.assert_allclose(conv(x, EDGES).detach().numpy(), expected, rtol=1e-4, atol=1e-6)
