"""Text from language models: caches of keys and values, sampling, beams, speculative decoding."""

from tandem.generation.beam import beam_search
from tandem.generation.cache import Cache, StaticCache
from tandem.generation.decoder import Decoder
from tandem.generation.generate import generate, stream
from tandem.generation.paged import BlockPool, PagedCache
from tandem.generation.sampling import Sampling

__all__ = [
    "BlockPool", "Cache", "Decoder", "PagedCache", "Sampling", "StaticCache", "beam_search", "generate", "stream",
]  # fmt: skip
