"""The command line of the suite."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.suite import compare, report
from benchmarks.suite.run import FOLDER, Choice, run


def parser() -> argparse.ArgumentParser:
    """The arguments of a run."""
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.suite",
        description="Ours, SciPy's methods with our derivatives and a textbook method on many problems.",
        epilog="Also: `python -m benchmarks.suite list` and `... compare OLD.json NEW.json [--contender STM]`.",
    )
    p.add_argument("--quick", action="store_true", help="a part of the cases, shorter budgets; under five minutes")
    p.add_argument("--only", default="", metavar="PATTERN", help="cases whose name matches this regular expression")
    p.add_argument("--split", default="", choices=["", "seen", "held"], help="one half of the generated cases")
    p.add_argument("--contenders", default="", metavar="A,B", help="only these, for example STM,plain")
    p.add_argument("--jobs", type=int, default=1, help="processes")
    p.add_argument("--out", type=Path, help="where the runs are stored (benchmarks/results/suite/...)")
    return p


def main(arguments: list[str] | None = None) -> None:
    """Run, list or compare."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["compare"]:
        compare.main(given[1:])
        return
    if given[:1] == ["list"]:
        for case in Choice().cases():
            print(f"{case.split:<5}{'quick' if case.quick else '':<6}{case.name if case.split == 'seen' else '...'}")
        return
    if given[:1] == ["render"]:
        for name in given[1:]:
            print(report.render(json.loads(Path(name).read_text()), Path(name).with_suffix("")))
        return
    args = parser().parse_args(given)
    chosen = tuple(name for name in args.contenders.split(",") if name)
    path = args.out or FOLDER / f"runs{'.quick' if args.quick else ''}.json"
    whole = run(Choice(args.quick, args.only, args.split, chosen, args.jobs), path)
    print(report.render(whole, path.with_suffix("")))


if __name__ == "__main__":
    main()
