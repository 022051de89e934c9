"""What packages import from PyTorch's tracer to ask whether it works."""


def is_compile_supported(device_type) -> bool:
    return True
