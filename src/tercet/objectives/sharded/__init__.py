"""Linear models over shards: sums over row blocks that are read when they are asked for, in the order of the shards."""

from tercet.objectives.sharded.model import ShardedLinearModel

__all__ = ["ShardedLinearModel"]
