"""td.data under PyTorch's path."""

import sys

import tandem.data

# One module under two names: what is patched or added in one is seen in the other.
sys.modules[__name__] = tandem.data
