"""The paper's experiment as a comparison: STM, SCR and SGD on its three data sets, ten random starts, tuned grids.

What the paper says is taken as it is: the loss, 5 % samples, gamma = (0.8, 1.2, 2), eta = (0.2, 0.8), sigma_0 = 1,
gradient descent inside with a step size tuned over 1e-4 ... 1, SGD tuned over batches of 1, 5, 10 % and the same steps.

What it leaves open is chosen here. Its objective is a plain sum and its lambda is not stated: lambda = 1e-3 and 1e-1
beside the sum (l2 = lambda/n beside the mean, which is what is minimized; sigma_0 and the step sizes are those of the
mean) and l2 = 1e-3 beside the mean. A random start is N(0, I). A run may take 200 epochs by the paper's counting,
100 in the quick version. This library's own settings, ARC, AR3 and two methods of SciPy run beside them; with all
methods also the variance-reduced ones and the third-order methods of others.
"""

from __future__ import annotations

from tercet.experiments import methods
from tercet.experiments.spec import Comparison

PENALTIES = ("0.001/n", "0.1/n", "0.001")
METHODS = ("STM", "SCR", "STM-paper", "SCR-paper", "SGD", "AR3", "ARC", "L-BFGS", "trust-exact")
FULL_DATA = ("svmguide3", "a9a", "covtype")
QUICK_DATA = ("svmguide3", "a9a:4000")


def protocol(quick: bool = False, everything: bool = False) -> Comparison:
    """The paper's protocol; `quick` takes svmguide3 and 4000 rows of a9a, half the budget, and tunes on one start.

    `everything` has all methods of the catalogue.
    """
    names = (*METHODS, *(name for name in methods.CATALOGUE if name not in METHODS)) if everything else METHODS
    title = (
        "The paper's experiments" + (" with all methods" if everything else "") + (", quick version" if quick else "")
    )
    return Comparison(
        data=QUICK_DATA if quick else FULL_DATA,
        l2=PENALTIES,
        methods=tuple(methods.plan(name) for name in names),
        starts=("N",),
        seeds=10,
        max_epochs=100.0 if quick else 200.0,
        tune_seeds=1 if quick else 2,
        title=title,
        paper=True,
    )
