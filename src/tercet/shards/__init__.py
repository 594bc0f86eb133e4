"""A table in row blocks that are opened when they are used: larger than memory, or spread over a cluster."""

from tercet.shards.shards import Shards

__all__ = ["Shards"]
