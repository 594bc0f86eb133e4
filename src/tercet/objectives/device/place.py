"""Data of the host, brought to a device of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

DENSE = 0.25  # of the entries are not 0: then a dense array takes less room and time


def to_device(call: str, X: Any, y: Any, device: str) -> tuple[Any, Any]:
    """X and y as tensors there, X in CSR layout where it is sparse; ValueError where the device cannot be had."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"{call}: data goes to a device by PyTorch: pip install 'tercet[torch]'.") from error
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"{call}: {device!r} is no device; give 'cuda', 'cuda:1' or 'cpu'.") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        built = "is built without CUDA" if torch.version.cuda is None else "finds no CUDA device"
        raise ValueError(
            f"{call}: this PyTorch ({torch.__version__}) {built}; install a build for CUDA on a machine that has a "
            "device, or leave the device out."
        )
    if place.type == "cuda" and place.index is not None and place.index >= torch.cuda.device_count():
        raise ValueError(f"{call}: there are {torch.cuda.device_count()} CUDA devices, numbered from 0.")
    targets = torch.from_numpy(np.array(y, dtype=np.float64)).to(place)
    if sp.issparse(X) and X.nnz >= DENSE * X.shape[0] * X.shape[1]:
        X = X.toarray()
    if not sp.issparse(X):
        return torch.from_numpy(np.array(X, dtype=np.float64)).to(place), targets
    from tercet.objectives.device.csr import csr_tensor

    parts = [torch.from_numpy(part.astype(kind)) for part, kind in ((X.indptr, np.int64), (X.indices, np.int64))]
    crow, col = (part.to(place) for part in parts)
    return csr_tensor(crow, col, torch.from_numpy(X.data.astype(np.float64)).to(place), X.shape), targets
