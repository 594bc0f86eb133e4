"""JAX arrays, on one device and scattered over eight: in a process of their own, where JAX has float64."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")
ROOT = Path(__file__).parents[3]

SCATTERED = """
import jax, numpy as np, tercet
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tests.objectives.device.libraries import data, same

assert len(jax.devices()) == 8
X, y, _ = data(1600, 5)
mesh = Mesh(np.array(jax.devices()), ("rows",))
over = lambda a, *names: jax.device_put(a, NamedSharding(mesh, PartitionSpec("rows", *names)))
options = dict(loss="logistic", l2=1e-3, intercept=True)
one = tercet.LinearModel(jax.numpy.asarray(X), jax.numpy.asarray(y), **options)
many = tercet.LinearModel(over(X, None), over(y), **options)
host = tercet.LinearModel(X, y, **options)
assert "cpu:0,1,2,3,4,5,6,7" in many.traits.provenance
x, u, v = np.random.default_rng(1).standard_normal((3, 6))
points = [each.over(None).at(x) for each in (host, one, many)]
for ask in (lambda p: p.value(), lambda p: p.gradient(), lambda p: p.hessian(), lambda p: p.product(3, u, v),
            lambda p: p.third_square(u).result, lambda p: p.third_bound(None)):
    own, there, scattered = (ask(point) for point in points)
    same(there, own), same(scattered, own)
assert len(points[2].margins.z.sharding.device_set) == 8
results = [tercet.minimize(each, method=tercet.STM(tercet.Full())) for each in (host, one, many)]
assert all(result.success for result in results)
for result in results[1:]:
    np.testing.assert_allclose(result.x, results[0].x, rtol=1e-7)
assert results[1].nit == results[2].nit
narrow = tercet.LinearModel(over(X.astype(np.float32), None), y, **options)
widened = tercet.LinearModel(X.astype(np.float32).astype(float), y, **options)
same(narrow.over(None).at(x).hessian(), widened.over(None).at(x).hessian())
print("equal")
"""


def run(command, **env):
    whole = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **env}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=whole, cwd=ROOT)


def test_rows_on_eight_devices_give_what_one_device_gives():
    flags = "--xla_force_host_platform_device_count=8"
    done = run(["-c", SCATTERED], JAX_ENABLE_X64="1", XLA_FLAGS=flags)
    assert done.stdout.strip() == "equal", done.stderr[-3000:]


def test_jax_arrays_pass_what_every_objective_promises():
    tests = [
        "-m",
        "pytest",
        "-q",
        "tests/conformance/test_objectives.py",
        "-k",
        "JAX and arrays",
        "-p",
        "no:cacheprovider",
    ]
    done = run(tests, JAX_ENABLE_X64="1")
    assert done.returncode == 0, done.stdout[-3000:]  # 5 where there are none


def test_without_float64_jax_sums_in_float32_and_says_so_or_how_to_switch_it_on():
    code = (
        "import jax, numpy as np, tercet\n"
        "X, y = jax.numpy.asarray(np.eye(4, 2)), np.array([0, 1, 0, 1])\n"
        "model = tercet.LinearModel(X, y)\n"
        "assert 'float32' in model.traits.provenance and model.traits.epsilon > 1e-7\n"
        "try:\n    tercet.LinearModel(X, y, accumulate='float64')\n"
        "except ValueError as error:\n    print('jax_enable_x64' in str(error))\n"
    )
    done = run(["-c", code], JAX_ENABLE_X64="0")
    assert done.stdout.strip() == "True", done.stderr[-3000:]
