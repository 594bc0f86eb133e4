"""Linear models: f(x) = (1/n) sum w_i l(a_i'x, y_i) + penalty(x), all derivatives in closed form."""

from tercet.objectives.linear.model import LinearModel

__all__ = ["LinearModel"]
