"""Linear models whose data is a PyTorch, JAX or CuPy array, wherever that lies.

What has the length of the data stays there; numbers, d-vectors and d x d matrices come to the host.
"""
