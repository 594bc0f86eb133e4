"""One device: linear models and sums on device arrays, against what PyTorch's own L-BFGS takes there.

    PYTHONPATH=src python -m benchmarks.device [--only NAME,NAME] [--scale 1.0] [--device cuda] [--out FILE]

Every figure is printed as soon as it is known, with the ceilings that were measured in the same run: a copy from device
to device (bytes read and written) and a matrix product in float64. A figure that raises is told and left out. Times are
medians of warm runs; `to 1e-8` is the time until f is within 1e-8 of the least f that any contender found. With
`--scale` all row counts are multiplied, so that everything can be tried on a small machine.
"""
