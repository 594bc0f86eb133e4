"""Sums of squares and of robust losses that are given by their residuals."""

from tercet.objectives.residuals.problem import Residuals

__all__ = ["Residuals"]
