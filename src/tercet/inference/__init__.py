"""From a minimizer to statistics: how an estimate varies, and the table that says so."""

from tercet.inference.estimates import Inference

__all__ = ["Inference"]
