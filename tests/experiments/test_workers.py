"""Processes of their own: answers come back, deaths are told, nothing outlives the comparison."""

import os
import subprocess
import sys
import time

import pytest

from tercet.experiments import methods
from tercet.experiments.methods import Plan
from tercet.experiments.runs import Task
from tercet.experiments.workers import DiedError, Pool, Where, Worker

NAME = "degenerate:256"


def task(label="STM", dataset=NAME, **changes):
    return Task(dataset, 0.0, "N", 0, changes.pop("plan", methods.plan(label)), 20.0, **changes).as_json()


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A module of the user's own that workers find as the comparison does."""
    (tmp_path / "my_methods.py").write_text(
        "import os, sys, tercet\n"
        "class Kill(tercet.SGD):\n    def kernel(self, run):\n        os._exit(3)\n"
        "class Leave(tercet.SGD):\n    def kernel(self, run):\n        sys.exit('enough')\n"
        "class Loud(tercet.SGD):\n    def kernel(self, run):\n        print('hello'); os.system('echo shell')\n"
        "        return super().kernel(run)\n"
        "class Threads(tercet.SGD):\n    def kernel(self, run):\n"
        "        raise ValueError(os.environ['OMP_NUM_THREADS'] + os.environ['OPENBLAS_NUM_THREADS'])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def own(name):
    return task(plan=Plan(name, f"my_methods:{name}"))


def test_answers_come_from_several_processes_and_deaths_are_told(path):
    tasks = [task(), own("Kill"), own("Loud"), own("Leave"), own("Threads"), task("SCR")]
    with Pool(2, Where()) as pool:
        answers = {t["plan"]["label"]: answer for t, answer in pool.answers(tasks)}
    assert answers["STM"]["error"] is None
    assert answers["SCR"]["error"] is None
    assert answers["Loud"]["error"] is None
    assert isinstance(answers["Kill"], DiedError)
    assert "code 3" in str(answers["Kill"])
    assert answers["Leave"]["error"] == "SystemExit: enough"
    assert answers["Threads"]["error"] == "ValueError: 11"


def test_data_that_is_gone_ends_the_comparison_and_not_one_run(tmp_path):
    where = Where(files={"mine": str(tmp_path / "gone.txt")})
    with pytest.raises(OSError, match=r"gone\.txt"), Pool(1, where) as pool:
        list(pool.answers([task(dataset="mine")]))


def test_a_worker_ends_when_its_comparison_is_killed(tmp_path):
    code = (
        "import time\nfrom tercet.experiments.workers import Worker, Where\n"
        "worker = Worker(Where())\nworker.process = worker.begin()\nworker.process.stdin.flush()\n"
        "print(worker.process.pid, flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    for _ in range(200):
        if not alive(pid):
            return
        time.sleep(0.1)
    os.kill(pid, 9)
    pytest.fail("the worker outlived its comparison")


def alive(pid):
    """Whether a process runs; one that ended and was not collected yet does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_ending_a_worker_twice_is_no_error():
    worker = Worker(Where())
    worker.end()
    worker.process = worker.begin()
    worker.end()
    worker.end()
    assert worker.process is None
