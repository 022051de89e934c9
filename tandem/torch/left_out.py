"""Parts of PyTorch that have no counterpart, and what to use instead: what `torch.<name>` says."""

ADVICE = {
    "_inductor": "td.compile generates code by itself; TANDEM_DEBUG=4 shows it",
    "classes": "classes of TorchScript need PyTorch's runtime; use Python's",
    "futures": "use concurrent.futures",
    "mps": "devices are 'cpu' and 'cuda'",
    "monitor": "use td.profile and td.training's logs",
    "nested": "pad to one length and mask, or use lists of tensors",
    "package": "use td.export.save for programs, and ordinary Python packages for code",
    "quantization": "there is no quantisation of PyTorch's kind; 16-bit floats: model.to(torch.bfloat16)",
    "quantize_per_tensor": "there is no quantisation of PyTorch's kind",
    "Stream": "torch.cuda.Stream is the class of streams",
    "Event": "torch.cuda.Event is the class of events",
    "xpu": "devices are 'cpu' and 'cuda'",
}
