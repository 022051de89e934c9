"""Models from the literature, as plain user-level code over tandem.nn: read one, copy it, change it.

>>> model = td.models.resnet18(num_classes=10)
>>> sum(p.numel() for p in model.parameters())
11181642
"""

from tandem.models.alexnet import AlexNet
from tandem.models.bert import BERT
from tandem.models.dcgan import Discriminator, Generator
from tandem.models.gpt2 import GPT2, gpt2
from tandem.models.graphs import GAT, GCN, GATConv, GCNConv
from tandem.models.inception import InceptionV3
from tandem.models.language import LSTMLanguageModel
from tandem.models.lenet import LeNet
from tandem.models.llama import Llama
from tandem.models.mobilenet import MobileNetV1, MobileNetV2
from tandem.models.ncf import NCF
from tandem.models.resnet import ResNet, resnet18, resnet34, resnet50, resnet101
from tandem.models.seq2seq import GNMT
from tandem.models.tree_lstm import BinaryTreeLSTMCell, ChildSumTreeLSTMCell, Tree, TreeLSTM
from tandem.models.vgg import VGG, vgg11, vgg13, vgg16, vgg19
from tandem.models.vit import ViT, vit_b_16, vit_b_32, vit_l_16

__all__ = [
    "BERT", "GAT", "GCN", "GNMT", "GPT2", "NCF", "VGG", "AlexNet", "BinaryTreeLSTMCell", "ChildSumTreeLSTMCell", "Discriminator",
    "GATConv", "GCNConv", "Generator", "InceptionV3", "LSTMLanguageModel", "LeNet", "Llama", "MobileNetV1", "MobileNetV2",
    "ResNet", "Tree", "TreeLSTM", "ViT", "gpt2", "resnet18", "resnet34", "resnet50", "resnet101", "vgg11", "vgg13", "vgg16",
    "vgg19", "vit_b_16", "vit_b_32", "vit_l_16",
]  # fmt: skip
