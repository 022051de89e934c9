"""What is measured, and the bar for it. Statements are the same text for every framework; adapters/ give it the names.

A bar is the largest accepted ratio of our time to that peer's, unless the kind of the case says otherwise.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    name: str
    setup: str  # runs once per process; what it defines are the statement's local variables
    statement: str  # what is timed
    bars: dict[str, float] = field(default_factory=dict)  # peer -> largest ratio
    section: str = ""


def _pair(n: int, grad: bool = False) -> str:
    grad = ", requires_grad=True" if grad else ""
    return f"x = randn({n}, {n}{grad})\ny = randn({n}, {n}{grad})"


SMALL = [
    Case("add 8x8", _pair(8), "x + y", {"torch": 0.4}),
    Case("add 8x8, grad", _pair(8, grad=True), "x + y", {"torch": 0.4}),
    Case("matmul 8x8", _pair(8), "x @ y", {"torch": 0.6}),
    Case("softmax 8x8", _pair(8), "x.softmax(-1)", {"torch": 0.3}),
    Case(
        "(x@w).relu().sum() 8x8, forward+backward",
        "x = randn(8, 8)\nw = randn(8, 8, requires_grad=True)",
        "(x @ w).relu().sum().backward(); w.grad = None",
        {"torch": 0.2},
    ),
]

# The output is new in every call and dropped at once: this is where others fault their pages in again.
LARGE = [
    Case("add 4096x4096", _pair(4096), "x + y", {"torch": 0.35, "tensorflow": 1.1}),
    Case("exp 4096x4096", "x = randn(4096, 4096)", "x.exp()", {"torch": 0.35}),
    Case("gelu 4096x4096", "x = randn(4096, 4096)", "gelu(x)", {"torch": 0.35}),
    Case("softmax 4096x4096", "x = randn(4096, 4096)", "x.softmax(-1)", {"torch": 0.35}),
    Case("x.T+1 4096x4096", "x = randn(4096, 4096)", "x.T + 1", {"torch": 0.35}),
    Case("sum axis 0, 4096x4096", "x = randn(4096, 4096)", "x.sum(0)", {"torch": 1.1}),
    Case("sum axis 1, 4096x4096", "x = randn(4096, 4096)", "x.sum(1)", {"torch": 1.1}),
]

MATMUL = [Case(f"matmul {n}", _pair(n), "x @ y", {"torch": 1.03}) for n in (512, 1024, 2048)]


def _convolution(batch, channels, size, filters, kernel, stride=1) -> list[Case]:
    name = f"conv {kernel}x{kernel}/{stride} {batch}x{channels}x{size}x{size} -> {filters}"
    call = f"conv2d(x, w, stride={stride}, padding={kernel // 2})"
    shapes = f"x = channels_last(randn({batch}, {channels}, {size}, {size}))\n"
    shapes += f"w = channels_last(randn({filters}, {channels}, {kernel}, {kernel}))\n"
    leaves = shapes + "x = x.detach().requires_grad_(True)\nw = w.detach().requires_grad_(True)\n"
    leaves += f"y = {call}\ng = channels_last(randn(*y.shape))"
    return [
        Case(f"{name}, forward", shapes, call, {"torch": 1.03}),
        Case(f"{name}, backward", leaves, "y.backward(g, retain_graph=True); x.grad = w.grad = None", {"torch": 1.03}),
    ]


CONVOLUTION = [
    *_convolution(8, 64, 56, 64, 3),
    *_convolution(8, 256, 14, 256, 3),
    *_convolution(8, 128, 28, 256, 3, stride=2),
    *_convolution(8, 256, 28, 64, 1),
    *_convolution(8, 64, 56, 256, 1),
    *_convolution(8, 3, 112, 64, 7, stride=2),
]

THROUGHPUT = {
    "small ops": SMALL,
    "large ops, output newly allocated": LARGE,
    "matmul": MATMUL,
    "convolution, channels-last": CONVOLUTION,
}

# Bar: ratio to our own time on the quiet machine.
LSTM_SETUP = """
steps = [randn(64, 256) for _ in range(20)]
wx = randn(256, 1024, requires_grad=True)
wh = randn(256, 1024, requires_grad=True)
b = randn(1024, requires_grad=True)
def lstm():
    h, c = zeros(64, 256), zeros(64, 256)
    for x in steps:
        gates = x @ wx + h @ wh + b
        i, f, o = gates[:, :256].sigmoid(), gates[:, 256:512].sigmoid(), gates[:, 768:].sigmoid()
        c = f * c + i * gates[:, 512:768].tanh()
        h = o * c.tanh()
    h.sum().backward()
    wx.grad = wh.grad = b.grad = None
"""
BUSY = [
    Case("matmul 2048", _pair(2048), "x @ y", {"itself, quiet": 2.5}),
    Case("LSTM-like chain, 20 steps, forward+backward", LSTM_SETUP, "lstm()", {"itself, quiet": 2.5}),
]

# Setup defines make(i), the arguments of the i-th shape, and call. Bar: seconds over the warm call.
NEW_SHAPE_BAR = 20e-6
NEW_SHAPE = [
    Case("add", "make = lambda i: (randn(9 + i, 17 + 2 * i), randn(9 + i, 17 + 2 * i))", "lambda x, y: x + y"),
    Case("softmax", "make = lambda i: (randn(9 + i, 17 + 2 * i),)", "lambda x: x.softmax(-1)"),
    Case("matmul", "make = lambda i: (randn(9 + i, 17 + 2 * i), randn(17 + 2 * i, 11 + i))", "lambda x, y: x @ y"),
    Case("sum axis 0", "make = lambda i: (randn(9 + i, 17 + 2 * i),)", "lambda x: x.sum(0)"),
    Case("add with broadcasting, grad", "make = lambda i: (randn(9 + i, 17 + 2 * i, requires_grad=True), randn(17 + 2 * i))",
         "lambda x, y: x + y"),
]  # fmt: skip

# Each is the first use of its kernels in a new process, after another kernel has been used. Bars: seconds.
FIRST_USE_BAR = {"cold": 30e-3, "disk cache": 3e-3}
FIRST_USE = [
    Case("add", "x = randn(8, 8)\ny = randn(8, 8)", "x + y"),
    Case("gelu", "x = randn(8, 8)", "gelu(x)"),
    Case("softmax", "x = randn(8, 8)", "x.softmax(-1)"),
    Case("sum axis 0", "x = randn(8, 8)", "x.sum(0)"),
    Case("softmax, grad", "x = randn(8, 8, requires_grad=True)", "x.softmax(-1)"),
]
FIRST_USE_BEFORE = Case("warm-up", "x = randn(8, 8)", "x.abs()")
