"""The Ray engine: the same bits here and on a cluster, also when an actor or a node is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headscope.app.cli.main import main
from headscope.errors import HeadscopeError
from headscope.run.analyze import analyze
from headscope.text.readers.read import read
from tests.run.corpora import make_corpus
from tests.run.gate import Gate, GatedShare, noted_documents, wait_until
from tests.run.same import assert_same_bits
from tests.run.shards import small_shards

if TYPE_CHECKING:
    from headscope.model.model import Model
    from headscope.results.result import Result
    from headscope.text.corpus import Corpus

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore"),  # Ray's own, of many kinds
    pytest.mark.ray,
]
METRICS = ["null_share", "dep_alignment", "variability", "exemplars"]
GATED = [*METRICS, GatedShare()]
STARTS = 5


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes longer to start Ray than Ray allows it: it is started again."""
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "60")


def on_ray(model: Model, corpus: Corpus, out: Path, killed: threading.Event) -> Result:
    """An analysis by two actors of a Ray that starts here and that somebody kills.

    What fails before that is Ray's own: on a busy machine its node gives up when its agents
    are slow to answer.
    """
    for _ in range(STARTS - 1):
        try:
            return analyze(model, corpus, METRICS, engine="ray", workers=2, out=out)
        except HeadscopeError:
            if killed.is_set():
                raise
    return analyze(model, corpus, METRICS, engine="ray", workers=2, out=out)


def wait_for_a_shard(out: Path) -> None:
    """Shards are folded into one file soon after they come: any whole file will do."""
    while not any(out.glob("shards/*.npz")):
        time.sleep(0.002)


def processes_of_ray() -> list[Any]:
    """Ours, of every kind, and those that were orphaned."""
    psutil = pytest.importorskip("psutil", reason="psutil finds Ray's processes")
    kinds = ("raylet", "gcs_server", "ray::")
    found = []
    for process in psutil.process_iter(["name", "ppid"]):
        with contextlib.suppress(psutil.Error):  # it ended meanwhile
            if str(process.info["name"]).startswith(kinds) and process.status() != "zombie":
                found.append(process)
    return found


def command_of(process: Any) -> list[str]:
    psutil = pytest.importorskip("psutil", reason="psutil finds Ray's processes")
    try:
        command: list[str] = process.cmdline()
    except psutil.Error:  # it ended meanwhile
        return []
    return command


def actors() -> list[Any]:
    """The processes of Ray that measure."""
    return [process for process in processes_of_ray() if "_Actor" in " ".join(command_of(process))]


def kill_in_the_middle(*names: str, spare: frozenset[int] = frozenset()) -> None:
    """Kill Ray's processes of these names while its actors stand still.

    An actor that measured on could finish the run before its cluster is missed.
    """
    psutil = pytest.importorskip("psutil", reason="psutil finds Ray's processes")
    halted = [process for process in actors() if process.pid not in spare]
    chosen = [process for process in processes_of_ray() if process.info["name"] in names]
    chosen = [process for process in chosen if process.pid not in spare]
    for process, action in (
        *((process, "suspend") for process in halted),
        *((process, "kill") for process in (*chosen, *halted)),
    ):
        with contextlib.suppress(psutil.Error):  # one that has ended must not spare the others
            getattr(process, action)()


def test_a_dead_node_is_one_error_and_nothing_is_left(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    small_shards(monkeypatch)
    corpus = make_corpus(2500)
    before = frozenset(process.pid for process in processes_of_ray())

    killed = threading.Event()

    def kill_raylet() -> None:
        wait_for_a_shard(tmp_path)
        killed.set()
        kill_in_the_middle("raylet", spare=before)

    killer = threading.Thread(target=kill_raylet, daemon=True)
    killer.start()
    with pytest.raises(HeadscopeError, match="run the same again to go on") as caught:
        on_ray(tiny_bert, corpus, tmp_path, killed)
    assert "Ray" in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    deadline = time.monotonic() + 60  # workers notice that their node is gone
    while left := [process for process in processes_of_ray() if process.pid not in before]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
    kept = list(tmp_path.glob("shards/*.npz")) + list(tmp_path.glob("**/prefix*"))
    assert kept
    again = analyze(tiny_bert, corpus, METRICS, out=tmp_path)
    assert_same_bits(analyze(tiny_bert, corpus, METRICS), again)


@pytest.fixture(autouse=True)
def _no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray asks for a token of the home folder; two clusters that start at once make two."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")


def free_ports(n: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def started_node(
    *options: str, ip: str = "127.0.0.1", environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str] | None]:
    """A node of Ray in processes of its own; None if Ray did not start it."""
    pytest.importorskip("ray", reason="the extra ray is not installed")
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *options]
    # Ports that other nodes on this machine do not have.
    named = ("dashboard-agent-grpc-port", "dashboard-agent-listen-port")
    named += ("metrics-export-port", "runtime-env-agent-port")
    command += [f"--{name}={port}" for name, port in zip(named, free_ports(4), strict=True)]
    command += [f"--node-ip-address={ip}", "--disable-usage-stats"]
    command += ["--object-store-memory=200000000"]
    node = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    try:
        assert node.stdout is not None
        yield node if any("Ray runtime started" in line for line in node.stdout) else None
    finally:
        kill_node(node)


def kill_node(node: subprocess.Popen[str]) -> None:
    """Kill all processes of a node. Asked politely, Ray takes half a minute."""
    psutil = pytest.importorskip("psutil", reason="psutil finds Ray's processes")
    if node.poll() is None:
        for process in [*psutil.Process(node.pid).children(recursive=True), node]:
            with contextlib.suppress(psutil.Error):  # it ended meanwhile
                process.kill()
        node.wait(30)
    assert node.stdout is not None
    node.stdout.close()


@contextlib.contextmanager
def started_cluster(cores: int = 2, environment: dict[str, str] | None = None) -> Iterator[str]:
    """The address of a Ray cluster that is not ours: one node in processes of its own."""
    for _ in range(STARTS):
        (port,) = free_ports(1)
        head = ["--head", f"--port={port}", f"--num-cpus={cores}", "--include-dashboard=false"]
        with started_node(*head, environment=environment) as node:
            if node is not None:
                yield f"127.0.0.1:{port}"
                return
    pytest.fail(f"Ray did not start in {STARTS} attempts")


@contextlib.contextmanager
def joined_node(
    address: str, ip: str, environment: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Another node of a cluster, with one core and ports that no other node has."""
    options = (f"--address={address}", "--num-cpus=1", "--min-worker-port=0", "--max-worker-port=0")
    for _ in range(STARTS):
        with started_node(*options, ip=ip, environment=environment) as node:
            if node is not None:
                yield node
                return
    pytest.fail(f"Ray did not start in {STARTS} attempts")


def again_if_ray_fails(attempt: Callable[[Path, threading.Event], None], folder: Path) -> None:
    """Do something in a new folder; in another, if Ray fails before the test kills a part of it.

    On a busy machine a node of Ray gives up when its own agents are slow to answer.
    """
    killed = threading.Event()
    for number in range(STARTS):
        (folder / str(number)).mkdir()
        try:
            attempt(folder / str(number), killed)
            return
        except HeadscopeError as error:
            is_early = not killed.is_set() and number < STARTS - 1
            if not is_early or not str(error).startswith("Ray "):  # its own troubles
                raise


@contextlib.contextmanager
def started_run(model: Model, corpus: Corpus, out: Path, address: str) -> Iterator[Future[Result]]:
    """A run by two actors in a thread. When the block fails, the gate opens."""
    with ThreadPoolExecutor(1) as thread:
        try:
            yield thread.submit(
                analyze, model, corpus, GATED, engine="ray", workers=2, out=out, address=address
            )
        finally:
            Gate(out.parent).open()


def wait_in(run: Future[Result], is_so: Callable[[], object]) -> None:
    """Wait in the middle of a run, which must not have ended then."""
    wait_until(lambda: run.done() or is_so())
    if run.done():
        pytest.fail(f"The run ended too soon: {run.result()}")


def test_a_cluster_gives_the_same_bits_also_when_an_actor_is_killed(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both actors have measured a shard and wait in the next one when one of them is killed."""
    import ray

    small_shards(monkeypatch)
    corpus = make_corpus(400)
    alone = analyze(tiny_bert, corpus, GATED)

    def attempt(folder: Path, killed: threading.Event) -> None:
        gate = Gate(folder)
        with (
            started_cluster(2, gate.environment("only")) as address,
            started_run(tiny_bert, corpus, folder / "run", address) as run,
        ):
            wait_in(run, lambda: len(gate.actors("only")) == 2)
            killed.set()
            os.kill(min(gate.actors("only")), signal.SIGKILL)
            wait_in(run, lambda: len(gate.actors("only")) == 3)
            gate.open()
            assert_same_bits(alone, run.result())

    again_if_ray_fails(attempt, tmp_path)
    assert not ray.is_initialized()


def test_a_node_may_die_and_another_join(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two nodes has measured a shard when the second is killed.

    The run goes on when a third node has joined and measured a shard.
    """
    small_shards(monkeypatch)
    corpus = read(partial(noted_documents, 400))
    alone = analyze(tiny_bert, corpus, GATED)

    def attempt(folder: Path, killed: threading.Event) -> None:
        gate = Gate(folder)
        with (
            started_cluster(1, gate.environment("first")) as address,
            joined_node(address, "127.0.0.2", gate.environment("second")) as second,
            started_run(tiny_bert, corpus, folder / "run", address) as run,
        ):
            wait_in(run, lambda: gate.actors("first") and gate.actors("second"))
            killed.set()
            kill_node(second)
            with joined_node(address, "127.0.0.3", gate.environment("third")):
                wait_in(run, lambda: gate.actors("third"))
                gate.open()
                assert_same_bits(alone, run.result())
        assert gate.readers() == {"first"}  # as only the caller may have its files

    again_if_ray_fails(attempt, tmp_path)


def test_a_dead_cluster_is_one_error_at_the_command_line(
    tiny_bert: Model, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tiny_bert.module.save_pretrained(tmp_path / "model")
    assert tiny_bert.tokenizer is not None
    tiny_bert.tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "corpus.txt").write_text("The cat sat on the mat.\n" * 60_000)

    before = frozenset(process.pid for process in processes_of_ray())

    def kill_cluster() -> None:
        while {process.pid for process in actors()} <= before:
            time.sleep(0.02)  # each loads torch and the model first, for seconds
        kill_in_the_middle("raylet", "gcs_server", spare=before)

    killer = threading.Thread(target=kill_cluster, daemon=True)
    killer.start()
    capfd.readouterr()  # what saving the model printed
    command = ["analyze", str(tmp_path / "corpus.txt"), "--model", str(tmp_path / "model")]
    command += ["--out", str(tmp_path / "run"), "--metrics", "distance", "--no-figures"]
    with started_cluster() as cluster, pytest.raises(SystemExit) as stop:
        main([*command, "--engine", "ray", "--address", cluster, "--workers", "2", "--quiet"])
    assert stop.value.code == 2
    out, err = capfd.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert "run the same again to go on" in line
