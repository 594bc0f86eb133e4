"""Which figures, in which order, and the report."""

from __future__ import annotations

import argparse
import os
import platform
import time
import traceback
from pathlib import Path

import torch

import tercet
from benchmarks.device import figures, networks
from benchmarks.device.measure import Bench

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take most of the device for itself
FIGURES = {
    "pass": figures.one_pass,
    "main": figures.main_case,
    "memory": figures.memory,
    "ill": figures.ill_conditioned,
    "gram": figures.gram_matrix,
    "autodiff": figures.autodiff,
    "single": figures.single,
    "large": figures.large,
    "csr": figures.csr,
    "networks": networks.networks,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device")
    parser.add_argument("--only", default=",".join(FIGURES), help="names, with commas between them")
    parser.add_argument("--scale", type=float, default=1.0, help="of all row counts")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=400.0, help="after which no further figure is begun")
    parser.add_argument("--out", type=Path, help="a file for the report")
    options = parser.parse_args()
    bench = Bench(torch.device(options.device), options.scale, options.repeats)
    name = torch.cuda.get_device_name() if bench.device.type == "cuda" else platform.processor()
    bench.say(f"{name}; PyTorch {torch.__version__}, tercet {tercet.__version__}, {torch.get_num_threads()} threads")
    begun = time.perf_counter()
    for chosen in ["ceilings", *options.only.split(",")]:
        figure = figures.ceilings if chosen == "ceilings" else FIGURES[chosen]
        since = time.perf_counter()
        if since - begun > options.seconds:
            bench.say(f"{chosen}: left out, the time is up")
            continue
        try:
            figure(bench)
        except Exception as error:
            bench.say(f"{chosen}: raised {type(error).__name__}: {str(error)[:500]}")
            traceback.print_exc(limit=-6)
        bench.clear()
        print(
            f"  [{chosen}: {time.perf_counter() - since:.1f} s, {time.perf_counter() - begun:.1f} s in all]", flush=True
        )
        if options.out is not None:
            options.out.write_text("\n".join(bench.lines) + "\n")


if __name__ == "__main__":
    main()
