"""A network that is trained here and recognises digits in a browser: plain C (td.export.c), compiled to WebAssembly.

    python examples/digits_page.py page        # trains, exports, compiles; then open http://localhost:8000
    python examples/digits_page.py page --only-build

It needs clang and lld with wasi-libc (Debian: clang lld wasi-libc libclang-rt-14-dev-wasm32) and scikit-learn for the images.
"""

import functools
import http.server
import pathlib
import shutil
import subprocess
import sys

import tandem as td
from tandem import nn
from tandem.nn import functional as F

PAGE = pathlib.Path(__file__).parent / "digits_page" / "index.html"

# What the page calls: where to put an image, where to read scores.
GLUE = """#include "digits.h"
static float image[64], scores[10];
float* image_at(void) { return image; }
float* scores_at(void) { return scores; }
int recognise(void) { return digits_run(image, scores); }
"""


def train(epochs: int = 12, seed: int = 0) -> nn.Module:
    td.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(32 * 16, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = td.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    loader = td.data.DataLoader(td.data.sets.digits("train"), batch_size=64, shuffle=True, drop_last=True)

    @td.compile
    def step(images, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(epochs):
        for images, labels in loader:
            step(images, labels)
    return model.eval()


def build(model: nn.Module, folder: pathlib.Path):
    """Writes index.html and digits.wasm."""
    folder.mkdir(parents=True, exist_ok=True)
    td.export.c(model, td.zeros(1, 1, 8, 8), folder / "c", name="digits")
    (folder / "c" / "page.c").write_text(GLUE)
    exported = [f"-Wl,--export={name}" for name in ("image_at", "scores_at", "recognise")]
    subprocess.run(
        ["clang", "--target=wasm32-wasi", "--sysroot=/usr", "-std=c99", "-O2", "-msimd128", "-nostartfiles", "-Wl,--no-entry",
         *exported, "page.c", "digits.c", "digits_weights.c", "-lm", "-o", "../digits.wasm"],
        cwd=folder / "c", check=True,
    )  # fmt: skip
    shutil.copy(PAGE, folder / "index.html")


def serve(folder: pathlib.Path, port: int = 8000) -> http.server.ThreadingHTTPServer:
    class Handler(http.server.SimpleHTTPRequestHandler):
        extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".wasm": "application/wasm"}

        def log_message(self, format, *args):
            pass

    return http.server.ThreadingHTTPServer(("localhost", port), functools.partial(Handler, directory=str(folder)))


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "page")
    build(train(), folder)
    print(f"{folder}/digits.wasm: {(folder / 'digits.wasm').stat().st_size} bytes")
    if "--only-build" not in sys.argv:
        print("http://localhost:8000")
        serve(folder).serve_forever()


if __name__ == "__main__":
    main()
