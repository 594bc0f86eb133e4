"""The objectives: linear models, JAX finite sums, plain functions."""
