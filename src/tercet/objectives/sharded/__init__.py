"""Objectives over shards: sums over row blocks that are read when they are asked for, in the order of the shards."""

from tercet.objectives.sharded.finite_sum import ShardedFiniteSum
from tercet.objectives.sharded.model import ShardedLinearModel
from tercet.objectives.sharded.residuals import ShardedResiduals

__all__ = ["ShardedFiniteSum", "ShardedLinearModel", "ShardedResiduals"]
