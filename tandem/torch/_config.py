"""torch.__config__: how this was built."""

import tandem as td


def show() -> str:
    return f"Tandem {td.__version__}, under PyTorch's names"


def parallel_info() -> str:
    return f"threads: {td.get_num_threads()}"
