"""Tercet as a minimiser of optimistix:

    optimistix.minimise(fn, tercet.optimistix.STM(rtol=1e-8, atol=1e-8), y0)

The dense third-order step with the formulas of tercet's own method, written in JAX: it can be compiled, mapped over
starts with `vmap`, and differentiated through by the implicit function theorem, optimistix's default.
"""

from tercet.optimistix.solver import STM, certify

__all__ = ["STM", "certify"]
