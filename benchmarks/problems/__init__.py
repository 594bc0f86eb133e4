"""Test problems for the benchmarks."""
