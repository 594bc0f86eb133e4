"""The formulas of a loss as CUDA kernels that CuPy compiles; what they are for stands in `rowwise`, their twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tercet.objectives.device.losses import Part
from tercet.objectives.device.written import CUDA, written

THREADS = 256  # of one block
WAVES = 8  # blocks for each processor of a device
TYPES = {"float64": "double", "float32": "float"}

FORMULA = """
typedef {type} T;
__device__ T formula(T z, T y) {{
{lines}return {value};
}}
"""
PART = """
extern "C" __global__ void part(const T* z, const T* y, const T* w, T* out, long long m) {
    long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = (long long)gridDim.x * blockDim.x;
    for (long long i = first; i < m; i += step)
        out[i] = formula(z[i], y[i]) * (w ? w[i] : T(1));
}
"""
LOOK = """
extern "C" __global__ void look(const T* base, const T* ahead, const T* y, const T* w, double* out, double t,
                                long long m) {
    __shared__ double sums[3][THREADS];
    double total = 0, here = 0, there = 0;
    long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = (long long)gridDim.x * blockDim.x;
    for (long long i = first; i < m; i += step) {
        T z = base[i], change = ahead ? ahead[i] : T(0);
        here = fmax(here, (double)fabs(z));
        there = fmax(there, (double)fabs(change));
        total += formula(z + T(t) * change, y[i]) * (w ? w[i] : T(1));
    }
    sums[0][threadIdx.x] = total; sums[1][threadIdx.x] = here; sums[2][threadIdx.x] = there;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[0][threadIdx.x] += sums[0][threadIdx.x + half];
            sums[1][threadIdx.x] = fmax(sums[1][threadIdx.x], sums[1][threadIdx.x + half]);
            sums[2][threadIdx.x] = fmax(sums[2][threadIdx.x], sums[2][threadIdx.x + half]);
        }
    }
    if (threadIdx.x < 3) out[3 * blockIdx.x + threadIdx.x] = sums[threadIdx.x][0];
}
"""


@cache
def kernel_of(loss: Part, order: int, kind: str, name: str) -> Any:
    """`part` or `look` for l^(order), compiled when it is first called on a device."""
    import cupy

    lines, value = written(loss, order, CUDA)
    source = FORMULA.format(type=TYPES[kind], lines=lines, value=value) + (PART if name == "part" else LOOK)
    return cupy.RawKernel(source.replace("THREADS", str(THREADS)), name)


@dataclass(frozen=True, eq=False)
class CupyKernels:
    """One launch for each answer, over all rows."""

    loss: Part
    place: Any
    kind: str
    blocks: int  # that make the device busy

    @staticmethod
    def of(place: Any, kind: str, loss: Part) -> CupyKernels | None:
        """None where they cannot be compiled there."""
        import cupy

        try:
            with place:
                processors = place.attributes["MultiProcessorCount"]
                kernels, z = CupyKernels(loss, place, kind, WAVES * processors), cupy.linspace(-1.0, 1.0, 5, dtype=kind)
                kernels.look(z, z, 0.5, z, z)
                kernels.part(0, z, z, None)
        except Exception:  # no compiler here: plain operations serve everywhere
            return None
        return kernels

    def part(self, order: int, z: Any, y: Any, w: Any) -> Any:
        """w l^(order)."""
        import cupy

        with self.place:
            out = cupy.empty(z.shape, dtype=self.kind)
            vectors = (each if each is None else cupy.ascontiguousarray(each) for each in (z, y, w))
            pointers = (0 if each is None else each for each in vectors)
            kernel_of(self.loss, order, self.kind, "part")((self.grid(z),), (THREADS,), (*pointers, out, len(z)))
        return out

    def look(self, base: Any, ahead: Any, t: float, y: Any, w: Any, sizes: bool = False) -> Sequence[Any]:
        """Rows of three numbers, one for each block."""
        import cupy

        with self.place:
            out = cupy.empty((self.grid(base), 3))
            vectors = (each if each is None else cupy.ascontiguousarray(each) for each in (base, ahead, y, w))
            pointers = (0 if each is None else each for each in vectors)
            kernel = kernel_of(self.loss, 0, self.kind, "look")
            kernel((len(out),), (THREADS,), (*pointers, out, float(t), len(base)))
        return (out,)

    def grid(self, v: Any) -> int:
        """How many blocks work on a vector."""
        return int(min(self.blocks, -(-len(v) // THREADS)))
