"""What a run carries from one iteration to the next: nothing writes into it, and arrays hold all of it."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, asdict, fields, replace
from typing import Any

import numpy as np
import pytest

import tercet
from tercet import Status, theory
from tercet.critical.looks import WayDown
from tercet.methods.checkpoint import bring_arrays_back, set_arrays_aside
from tercet.methods.phases import Leaving
from tercet.methods.state import Memory, State, Views
from tercet.records import Certificate, Sizes
from tercet.result import COLUMNS, Row
from tests.methods.walks import MODEL, N, Told, Walk, X, Y, dearer

SOME = Sizes(1000, 1000, 300, 100)
RANGES = theory.constants(MODEL).ranges
METHODS = {
    "STM": tercet.STM(),
    "SCR": tercet.SCR(),
    "SGD": tercet.SGD(),
    "all terms": tercet.STM(tercet.Full()),
    "nested": tercet.STM(tercet.Progressive(multiple=4, factor=1.5)),
    "nested, B and T over other terms": tercet.STM(Told(lambda n, d: SOME), worth=np.inf),
    "lagging": tercet.STM(tercet.Progressive(multiple=4, lag=20)),
    "lagging SCR": tercet.SCR(tercet.Progressive(multiple=4, lag=20)),
    "Krylov": tercet.STM(tercet.Progressive(multiple=4), tercet.Krylov()),
    "Subspace": tercet.STM(tercet.Progressive(multiple=4), tercet.Subspace()),
    "independent": tercet.STM(tercet.Fixed(0.1, 0.1, 0.05)),
    "independent SCR": tercet.SCR(tercet.Fixed(0.1, 0.1, 0.05)),
    "independent, B over all terms": tercet.STM(tercet.Fixed(0.02, 1.0, 0.2), sigma=tercet.PaperSigma(start=1e-4)),
    "independent, with replacement": tercet.STM(tercet.Fixed(0.1, 0.1, 0.05, replacement=True)),
    "growing": tercet.STM(tercet.Growing(0.1, 1.3)),
    "adaptive": tercet.STM(tercet.Adaptive()),
    "theory": tercet.STM(tercet.Theory(0.3, 0.1, RANGES, (1.0, 1.0, 1.0), 50, bound="bernstein")),
    "paper": tercet.STM.paper(),
}
PROBLEMS = {"cheap": MODEL, "dear": dearer(tercet.LinearModel(X, Y, l2=1e-3))}
BOTH = [(name, problem) for name in METHODS for problem in PROBLEMS if (name, problem) != ("Subspace", "dear")]


def numbers(row: Row) -> np.ndarray:
    """All columns but the seconds."""
    cells = row.as_dict()
    return np.array([np.nan if cells[name] is None else cells[name] for name in COLUMNS if name != "seconds"], float)


def through_a_file(arrays: dict[str, Any]) -> dict[str, Any]:
    """As a checkpoint writes and reads them."""
    aside: dict[str, Any] = {}
    text = json.dumps(set_arrays_aside(arrays, aside))
    return bring_arrays_back(json.loads(text), {name: array.copy() for name, array in aside.items()})


@pytest.mark.parametrize(("name", "problem"), BOTH)
def test_a_state_made_again_from_its_arrays_continues_bit_for_bit(name, problem):
    walk, settled = Walk.of(METHODS[name], PROBLEMS[problem], seed=3), 0
    others: list[Walk] = []
    for _ in range(16):
        if walk.state.settled:
            settled += 1
            others.append(walk.again(walk.state.arrays()))
            others.append(walk.again(through_a_file(walk.state.arrays())))
        row = walk.step()
        for other in others:
            same = other.step()
            if isinstance(row, Status):
                assert same is row
            else:
                assert numbers(same).tobytes() == numbers(row).tobytes()
            assert other.state.x.tobytes() == walk.state.x.tobytes()
            assert other.run.meter.tally == walk.run.meter.tally
        if isinstance(row, Status):
            break
    assert settled >= 4
    assert walk.memory.iteration >= 5


def test_the_runs_above_use_hessians_again_and_have_rejections():
    """Otherwise they would say little."""
    rejected, borrowed = set(), set()
    for name in METHODS.keys() - {"Subspace"}:
        walk = Walk.of(METHODS[name], PROBLEMS["dear"], seed=3)
        for _ in range(16):
            if walk.state.settled and walk.state.point.given.formed is not None:
                borrowed.add(name)
            row = walk.step()
            if isinstance(row, Status):
                break
            if not row.accepted:
                rejected.add(name)
    assert {"STM", "SCR", "nested", "lagging"} <= borrowed
    assert {"independent", "independent, B over all terms"} <= rejected


@pytest.mark.parametrize("kind", [State, Memory, Views])
def test_a_state_and_what_it_is_made_of_cannot_be_written_to(kind):
    state = Walk.of(tercet.STM()).state
    thing = {State: state, Memory: state.memory, Views: state.views}[kind]
    for field in fields(kind):
        with pytest.raises(FrozenInstanceError):
            setattr(thing, field.name, getattr(thing, field.name))


def test_an_expansion_that_is_kept_cannot_be_written_to():
    at = Walk.of(tercet.STM()).expand()
    for field in fields(at):
        with pytest.raises(FrozenInstanceError):
            setattr(at, field.name, None)


@pytest.mark.parametrize("name", METHODS)
def test_a_step_leaves_the_state_that_it_came_from_as_it_was_and_can_be_taken_again(name):
    walk = Walk.of(METHODS[name], seed=3)
    for _ in range(4):
        state, before = walk.state, frozen(walk.state)
        row = walk.step()
        assert frozen(state) == before
        again, same = walk.kernel.step(walk.run, state)
        # Its counts differ: what was computed at the point is remembered, and not paid for again.
        rows = (replace(each, counts=None, seconds=0.0) for each in (row, same))
        assert len({repr(each) for each in rows}) == 1
        assert again.x.tobytes() == walk.state.x.tobytes()


def frozen(state: State) -> str:
    """What arrays say of a state, less what was computed at its point."""
    arrays = {**state.arrays(), "x": state.x.tobytes(), "point": None, "origin": None}
    return repr((arrays, state.phase, id(state.kept), id(state.point), id(state.views)))


# when arrays have all of it -----------------------------------------------------------------------------------------


def test_a_state_is_settled_where_nothing_is_kept_of_the_last_iteration():
    walk = Walk.of(tercet.STM(tercet.Full()))
    state = walk.state
    assert state.settled
    assert not replace(state, kept=walk.expand()).settled
    assert not replace(state, phase=Leaving(WayDown(np.ones(5), 1.0, 2))).settled
    failed = Certificate(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3, N, N, "by hand")
    assert not replace(state, certificate=failed).settled
    walk.expand().B.hessian()
    assert not state.settled  # a Hessian that was paid for would be paid for again


def test_after_every_accepted_step_a_state_is_settled():
    for method in METHODS.values():
        walk = Walk.of(method, seed=3)
        for _ in range(8):
            row = walk.step()
            if isinstance(row, Status):
                break
            assert walk.state.settled or not row.accepted


def test_a_memory_is_made_again_from_its_fields_also_where_json_made_lists_of_them():
    memory = Walk.of(tercet.STM()).memory
    told = replace(memory, spreads=(1.0, 2.0, 3.0), variances=(0.5, np.nan, np.inf), noisy=True, stuck=3)
    made = Memory.of(through_a_file(asdict(told)))
    assert repr(made) == repr(told)
    assert isinstance(made.spreads, tuple)
    assert isinstance(made.variances, tuple)


# views --------------------------------------------------------------------------------------------------------------


def test_equal_sizes_share_a_view():
    run = Walk.of(tercet.STM()).run
    one = Views.of(run, Sizes(100, 100, 100, 100))
    assert one.value is one.hessian is one.third
    two = Views.of(run, Sizes(100, 100, 50, 50))
    assert two.hessian is two.third is not two.value
    whole = Views.of(run, Sizes(N, N, 50, 10 * N))
    assert whole.value is whole.third is run.full


def test_a_view_is_the_beginning_of_the_shuffled_order():
    run = Walk.of(tercet.STM()).run
    views = Views.of(run, Sizes(200, 200, 100, 50))
    for view, m in ((views.value, 200), (views.hessian, 100), (views.third, 50)):
        assert np.array_equal(view.rows, run.shuffle.order[:m])
