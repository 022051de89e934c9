"""Models at small size: the compiled training step is the eager one, and losses fall."""

import numpy as np

import tandem as td
from tandem import models
from tandem.nn import functional as F


def count(model) -> int:
    return sum(p.numel() for p in model.parameters())


def whole(high, *shape):
    return td.tensor(np.random.default_rng(1).integers(0, high, shape))


def images(n, size, channels=3):
    return td.tensor(np.random.default_rng(2).normal(size=(n, channels, size, size)).astype(np.float32))


def classifier(model, x, classes=4):
    y = whole(classes, x.shape[0])
    return model, lambda: F.cross_entropy(model(x), y)


def language(model, tokens, predict):
    return model, lambda: F.cross_entropy(predict(tokens).reshape(-1, 11), tokens.reshape(-1))


EDGES = td.tensor([[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3]])


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
    lenet,
    alexnet,
    vgg,
    resnet,
    bottleneck,
    mobilenet_v1,
    vit,
    lstm,
    gnmt,
    gpt2,
    bert,
    ncf,
    dcgan,
    gcn,
    gat,
    tree_lstm,
]


def check_training(make):
    """`make` gives a model and a function of its loss; ten steps, eagerly and compiled."""

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
