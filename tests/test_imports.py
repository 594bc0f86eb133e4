"""Who may import whom, and what `import tercet` must not load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tercet

ROOT = Path(tercet.__file__).parent

# room: what it may import of ours, by the beginning of the module's name
ALLOWED = {
    "records": [],
    "checks": [],
    "vectors": ["records"],
    "watch": ["records"],
    "threads": [],
    "shards": ["shards", "checks", "once", "records", "watch"],
    "once": [],
    "objectives": ["objectives", "shards", "checks", "domain", "once", "records", "threads", "vectors", "watch"],
    "sampling": ["sampling", "checks", "once", "records"],
    "model": ["records", "vectors"],
    "frame": ["once", "records"],
    "face": ["frame", "once", "records"],
    "domain": ["checks", "face", "frame", "records", "vectors"],
    "critical": [
        "critical",
        "checks",
        "domain",
        "face",
        "frame",
        "objectives.base",
        "objectives.capabilities",
        "objectives.metered",
        "once",
        "records",
        "vectors",
    ],
    "subsolvers": [
        "subsolvers",
        "checks",
        "once",
        "watch",
        "face",
        "frame",
        "model",
        "records",
        "vectors",
        "objectives.base",
        "objectives.metered",
        "critical.measures",
    ],
    "control": ["control", "checks", "frame", "model", "records", "vectors", "objectives.metered", "subsolvers.base"],
    "result": ["records"],
    "storage": ["checks", "records", "result"],
    "theory": ["theory", "checks", "sampling", "objectives", "records"],
    "datasets": ["datasets", "shards", "checks", "records"],
    "inference": ["inference", "checks", "records", "objectives", "critical.errors"],
    "methods": [
        "methods",
        "inference",
        "checks",
        "objectives",
        "sampling",
        "model",
        "domain",
        "frame",
        "once",
        "subsolvers",
        "control",
        "critical",
        "records",
        "result",
        "storage",
        "threads",
        "vectors",
        "watch",
    ],
}
LEAVES = [
    "experiments",
    "fitting",
    "scipy",
    "sklearn",
    "optimistix",
    "torch",
    "dask",
    "cli",
    "cli_shard",
    "cli_models",
    "cli_theory",
    "__init__",
    "__main__",
]  # may import anything
HEAVY = [
    "jax", "numba", "sklearn", "matplotlib", "pandas", "torch", "optimistix", "equinox", "pooch", "dask", "distributed",
    "pyarrow", "joblib", "statsmodels",
]  # fmt: skip


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path


def imports(name, path):
    """Our own modules that a file imports, anywhere in it, without the package's name."""
    package = ["tercet", *name.split(".")][:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            # `from tercet import model` imports the module too
            found = [f"{start}.{alias.name}" for alias in node.names] if start == "tercet" else [start]
        else:
            continue
        for module in found:
            if module == "tercet" or module.startswith("tercet."):
                yield module.removeprefix("tercet").lstrip(".")


def room_of(name):
    return name.split(".")[0]


def within(module, allowed):
    return any(module == a or module.startswith(a + ".") for a in allowed)


def test_every_module_belongs_to_a_room():
    assert {room_of(name) for name, _ in modules()} <= {*ALLOWED, *LEAVES}


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_imports_only_what_lies_to_its_left(room):
    wrong = [
        f"{name} imports {module}"
        for name, path in modules()
        if room_of(name) == room
        for module in imports(name, path)
        if not within(module, ALLOWED[room])
    ]
    assert wrong == []


def test_nothing_imports_the_leaves():
    wrong = [
        f"{name} imports {module}"
        for name, path in modules()
        if room_of(name) not in LEAVES
        for module in imports(name, path)
        if module == "" or room_of(module) in LEAVES
    ]
    assert wrong == []


def test_the_check_sees_imports_of_every_form(tmp_path):
    path = tmp_path / "x.py"
    path.write_text(
        "import tercet.model\nfrom tercet import result\nfrom tercet.records import Step\nfrom . import base\n"
        "from ..critical import certify\ndef f():\n    import tercet.methods.step\n"
    )
    found = set(imports("subsolvers.x", path))
    assert found == {"model", "result", "records", "subsolvers", "critical", "methods.step"}


def loaded_after(code):
    text = f"import sys\n{code}\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_tercet_loads_no_heavy_package():
    loaded = loaded_after("import tercet")
    assert "tercet" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_a_dense_linear_model_loads_neither_jax_nor_numba():
    loaded = loaded_after(
        "import numpy as np\nfrom tercet import LinearModel\n"
        "LinearModel(np.eye(3), [0, 1, 0]).over(None).at(np.ones(3)).hessian()"
    )
    assert loaded.isdisjoint(HEAVY)


def test_every_public_name_is_there_and_documented():
    for name in tercet.__all__:
        assert getattr(tercet, name).__doc__, name
