"""A cluster whose scheduler and workers are processes of their own: on this host, or each on one of its own, which is a
network namespace on a bridge of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

NET = "10.213.77"
PORT = 20_000 + os.getpid() % 10_000


def ip(*words: str) -> None:
    """Run `ip`; RuntimeError with what it says."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def forbidden() -> str | None:
    """Why there can be no namespaces here, or None."""
    if shutil.which("ip") is None:
        return "there is no `ip` here, to make network namespaces"
    try:
        ip("netns", "add", f"tercet-{os.getpid()}-try")
    except RuntimeError as error:
        return f"network namespaces are not permitted here: {error}"
    ip("netns", "del", f"tercet-{os.getpid()}-try")
    return None


@dataclass(eq=False)
class Hosts:
    """Some namespaces, and what runs in them; without names all of it runs on this host."""

    names: list[str] = field(default_factory=list)
    running: dict[int, subprocess.Popen[Any]] = field(default_factory=dict)

    def start(self, k: int, *words: str) -> None:
        """Run a module of Python on host k."""
        inside = ["ip", "netns", "exec", self.names[k]] if self.names else []
        command = [*inside, sys.executable, "-m", *words]
        paths = os.pathsep.join(path for path in sys.path if path)
        self.running[k] = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def address(self, k: int) -> str:
        """Where host k is."""
        return f"{NET}.{k + 2}" if self.names else "127.0.0.1"

    def kill(self, k: int) -> None:
        """SIGKILL what runs on host k; `ip netns exec` has become it."""
        process = self.running.pop(k)
        process.kill()
        process.wait(20)

    def unplug(self, k: int) -> None:
        """Host k is not heard of any more; it does not know."""
        ip("netns", "exec", self.names[k], "ip", "link", "set", "eth0", "down")


@contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """Namespaces 10.213.77.2 and on, which see each other and this one, 10.213.77.1."""
    tag, made = f"tc{os.getpid() % 100000}", Hosts([])
    bridge = f"{tag}br"
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("addr", "add", f"{NET}.1/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for k in range(count):
            name, link = f"{tag}-{k}", f"{tag}v{k}"
            ip("netns", "add", name)
            made.names.append(name)
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", link, "master", bridge)
            ip("link", "set", link, "up")
            ip("netns", "exec", name, "ip", "addr", "add", f"{NET}.{k + 2}/24", "dev", "eth0")
            ip("netns", "exec", name, "ip", "link", "set", "eth0", "up")
            ip("netns", "exec", name, "ip", "link", "set", "lo", "up")
        yield made
    finally:
        for k in list(made.running):
            made.kill(k)
        links = [("link", "del", f"{tag}v{k}") for k in range(count)]
        for words in (*links, *(("netns", "del", name) for name in made.names), ("link", "del", bridge)):
            subprocess.run(["ip", *words], capture_output=True, timeout=20, check=False)


@contextmanager
def cluster(made: Hosts, workers: int) -> Iterator[Any]:
    """A scheduler on host 0, a worker on each of the next ones, and a client here."""
    import distributed

    words = ("--host", made.address(0), "--port", str(PORT), "--no-dashboard")
    made.start(0, "distributed.cli.dask_scheduler", *words)
    try:
        for k in range(1, workers + 1):
            join(made, k)
        with distributed.Client(scheduler(made), timeout=20, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=60)
            yield client
    finally:
        for k in list(made.running):
            made.kill(k)


def scheduler(made: Hosts) -> str:
    """Its address."""
    return f"tcp://{made.address(0)}:{PORT}"


def join(made: Hosts, k: int) -> None:
    """A worker on host k."""
    words = ("--host", made.address(k), "--nthreads", "1", "--no-nanny", "--no-dashboard")
    made.start(k, "distributed.cli.dask_worker", scheduler(made), *words)


def given_up_after(client: Any, seconds: float) -> None:
    """A worker that is not heard of for so long is given up; before its imports are made it would be, too."""

    def change(dask_scheduler: Any) -> None:
        dask_scheduler.worker_ttl, check = seconds, dask_scheduler.periodic_callbacks["worker-ttl"]
        check.stop()
        check.callback_time = 500.0
        check.start()

    client.run_on_scheduler(change)
