"""The parts of a run of STM or SCR, chosen once: nothing is looked up by type or name while it goes on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any, Protocol

from tercet.control.curvature import Renewing
from tercet.control.sigma import Begin, SigmaRule, as_it_is
from tercet.control.third import Purchase
from tercet.frame import AsGiven, Euclidean, Natural, Units
from tercet.methods.guarantee import Guarantee, guarantee_of
from tercet.methods.policy import Completed, Independent, Nested, Policy
from tercet.methods.run import Run
from tercet.methods.search import AlongStep, OneLook, Search
from tercet.records import Sizes
from tercet.sampling.bounded import InMemory
from tercet.sampling.rules import Outlook, SizeRule
from tercet.subsolvers import Dense, GaussNewton, Krylov, Subspace
from tercet.subsolvers.base import Subsolver, needs_of
from tercet.subsolvers.walled import Walled

DEAR = 50.0  # products: where forming and factoring B takes longer than these, steps take products


class Settings(Protocol):
    """A method of samples and models: how many samples, which sizes, which sub-solver, which sigma."""

    @property
    def order(self) -> int:
        """2 or 3: the number of derivative samples that are drawn."""
        ...

    @property
    def power(self) -> int:
        """The power p of the regularizer sigma/p |s|^p."""
        ...

    @property
    def sizes(self) -> SizeRule:
        """How many terms."""
        ...

    @property
    def subsolver(self) -> Subsolver | None:
        """How the model is minimized; None chooses by the objective."""
        ...

    @property
    def sigma(self) -> SigmaRule:
        """How steps are regularized."""
        ...

    @property
    def units(self) -> Units:
        """In which units steps are measured."""
        ...

    @property
    def policy(self) -> Any:
        """How samples are drawn; None chooses by the size rule."""
        ...

    @property
    def worth(self) -> float:
        """Third derivatives are bought when a quadratic left more than 1/worth of the gradient unexplained."""
        ...

    @property
    def noise_aware(self) -> bool:
        """Whether a rejection that sampling error explains leaves sigma alone."""
        ...


@dataclass(frozen=True)
class SameTerms:
    """A size rule whose B and T are over the terms of f."""

    rule: SizeRule

    @property
    def nested(self) -> bool:
        """As the rule."""
        return self.rule.nested

    @property
    def replacement(self) -> bool:
        """As the rule."""
        return self.rule.replacement

    def first(self, n: int, d: int) -> Sizes:
        """As the rule."""
        return self.rule.first(n, d)

    def next(self, outlook: Outlook) -> Sizes:
        """The rule's sizes for f, for all of them."""
        sizes = self.rule.next(outlook)
        return replace(sizes, hessian=sizes.value, third=sizes.value)


@dataclass(frozen=True)
class Parts:
    """What one iteration is made of."""

    sizes: SizeRule
    policy: Policy  # how samples are drawn, grow, and give points
    guarantee: Guarantee  # what is promised of them
    curvature: Renewing  # when B is renewed
    third: Purchase  # when T is bought
    buys_first: bool  # with the step, before f is looked at
    subsolver: Subsolver
    sigma: SigmaRule
    begin: Begin  # the first radius, once x and g are known
    units: Units
    turns: bool  # steps are taken in the objective's own coordinates, where it has them
    search: Search
    order: int
    power: int
    forms_third: bool
    forms_hessian: bool
    noise_aware: bool
    linear: bool

    @staticmethod
    def of(settings: Settings, run: Run) -> Parts:
        """The parts of a method that suit a run; ValueError where they do not suit each other."""
        traits, rule = run.traits, settings.sizes
        suited = getattr(rule, "suited", None)
        rule = rule if suited is None else suited(traits.fewest, run.d)
        if traits.in_memory is not None and rule.nested:
            rule = InMemory(rule, traits.in_memory)
        subsolver = settings.subsolver
        if subsolver is None:
            wide = Subspace() if traits.images and rule.nested and not traits.dense else Krylov()
            formed = traits.dense and traits.hessian_products <= DEAR
            dense = Dense(whole=settings.sigma.first().sigma3 > 0.0)  # a sigma is that of the paper's model: all of T
            subsolver = GaussNewton.suited(traits) if traits.residuals else dense if formed else wide
        needs = needs_of(subsolver, traits, rule)
        given = run.as_given and isinstance(settings.units, Natural)
        units = Euclidean() if needs.own_units else AsGiven() if given else settings.units
        third = Purchase(
            settings.worth if settings.order >= 3 and (traits.buys_third or settings.worth == inf) else 0.0,
            traits.forms_third or needs.linear,
            run.objective.reuses_hessian and rule.nested,
        )
        return Parts(
            SameTerms(rule) if needs.same_terms else rule,
            policy_of(settings, run),
            guarantee_of(rule, settings.order),
            Renewing(),
            third,
            third.first,
            Walled(subsolver) if run.domain.bounded else subsolver,
            settings.sigma,
            getattr(settings.sigma, "begin", as_it_is),
            units,
            units.turns and needs.products and not run.domain.bounded,
            AlongStep() if traits.images and rule.nested else OneLook(),
            settings.order,
            needs.power or settings.power,
            traits.forms_third,
            needs.forms_hessian,
            settings.noise_aware,
            needs.linear,
        )


def policy_of(settings: Settings, run: Run) -> Policy:
    """The policy that was asked for, or the one that goes with the size rule."""
    if settings.policy is None:
        return Nested() if settings.sizes.nested else Independent()
    settings.policy.check(settings.sizes, run)
    return Completed.of(settings.policy)
