"""Parameter servers. See README.md here."""

from tandem.distributed.servers import service  # has every task answer their calls
from tandem.distributed.servers.client import ParameterServer, StepReport
from tandem.distributed.servers.embedding import ShardedEmbedding

__all__ = ["ParameterServer", "ShardedEmbedding", "StepReport", "service"]
