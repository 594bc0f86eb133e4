"""The command line of the speed benchmark."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

from benchmarks.speed import store, table
from benchmarks.speed.cases import FULL, QUICK
from benchmarks.speed.measure import run_case
from benchmarks.speed.memory import run_memory
from benchmarks.speed.progress import Progress
from benchmarks.speed.scaling import run_scaling
from benchmarks.speed.startup import run_startup
from benchmarks.speed.sums import run_sums

OTHERS = {"sums": run_sums, "scaling": run_scaling, "memory": run_memory, "startup": run_startup}


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.speed",
        description="Ours and the peers on the same data and derivative code: seconds, passes, epochs, memory. Takes "
        "about forty minutes and 8 GB of memory, with --quick under five minutes, on one core. Writes "
        "benchmarks/results/*.json and benchmarks/RESULTS.md.",
    )
    p.add_argument("--quick", action="store_true", help="smaller data, fewer seeds, shorter caps")
    p.add_argument("--cases", help=f"some of {','.join(names(False))}; results of the others stay")
    p.add_argument("--repeats", type=int, help="timings of each run, at most; medians are taken (3)")
    p.add_argument("--render", action="store_true", help="measure nothing, write RESULTS.md from the stored numbers")
    return p


def names(quick: bool) -> list[str]:
    """The cases in their order; the quick ones are a part of them."""
    return [case.name for case in (QUICK if quick else FULL)] + list(OTHERS)


def chosen(text: str | None, quick: bool) -> list[str]:
    """The cases that were asked for, all by default."""
    known = names(quick)
    asked = known if text is None else [name.strip() for name in text.split(",")]
    wrong = [name for name in asked if name not in known]
    if wrong:
        raise SystemExit(f"--cases {wrong[0]}: unknown here; choose of {', '.join(known)}.")
    return asked


def main(arguments: list[str] | None = None) -> None:
    """Measure the cases one by one; each is stored and the page written as soon as it is there."""
    options = parser().parse_args(arguments)
    progress, begin = Progress(), time.perf_counter()
    more = {} if options.repeats is None else {"repeats": options.repeats}
    cases = {case.name: replace(case, **more) for case in (QUICK if options.quick else FULL)}
    for name in [] if options.render else chosen(options.cases, options.quick):
        result = OTHERS[name](options.quick, progress) if name in OTHERS else run_case(cases[name], progress)
        store.write(result, options.quick)
        write_page()
        progress.clear()
        print(f"{name}: {result['seconds']:.0f} s", file=sys.stderr)
    write_page()
    lines = table.figures_table(store.read(options.quick) or store.read(not options.quick))
    print("\n".join(lines))
    print(f"{time.perf_counter() - begin:.0f} s; see {table.REPORT.name} beside results/", file=sys.stderr)


def write_page() -> None:
    """RESULTS.md from what is stored."""
    table.REPORT.write_text(table.render(store.read(False), store.read(True)))


if __name__ == "__main__":
    main()
