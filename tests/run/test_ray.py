"""The Ray engine: the same bits here and on a cluster, also when an actor is killed."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headscope.app.cli.main import main
from headscope.errors import HeadscopeError
from headscope.run.analyze import analyze
from tests.run.corpora import make_corpus
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
    return [
        process
        for process in psutil.process_iter(["name", "ppid"])
        if str(process.info["name"]).startswith(kinds) and process.status() != "zombie"
    ]


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
    halted = actors()
    for process in halted:
        process.suspend()
    for process in processes_of_ray():
        if process.info["name"] in names and process.pid not in spare:
            process.kill()
    for process in halted:
        process.kill()


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
def started_cluster() -> Iterator[str]:
    """The address of a Ray cluster that is not ours: one node in processes of its own."""
    pytest.importorskip("ray", reason="the extra ray is not installed")
    psutil = pytest.importorskip("psutil", reason="psutil finds Ray's processes")
    ports = free_ports(5)
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    # With ports of its own choice, a node dies if its agents need more than 15 seconds to start.
    named = ("port", "dashboard-agent-grpc-port", "dashboard-agent-listen-port")
    named += ("metrics-export-port", "runtime-env-agent-port")
    command += [f"--{name}={port}" for name, port in zip(named, ports, strict=True)]
    command += ["--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats"]
    command += ["--node-ip-address=127.0.0.1", "--object-store-memory=200000000"]
    for _ in range(STARTS):
        node = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            assert node.stdout is not None
            if any("Ray runtime started" in line for line in node.stdout):
                yield f"127.0.0.1:{ports[0]}"
                return
        finally:
            # Asked politely, Ray takes half a minute; nothing here is worth the wait.
            for process in [*psutil.Process(node.pid).children(recursive=True), node]:
                process.kill()
            node.wait(30)
            node.stdout.close()
    pytest.fail(f"Ray did not start in {STARTS} attempts")


def on_a_cluster(measure: Callable[[str], None]) -> None:
    """Do something with the address of a cluster; on another, if Ray itself fails.

    On a busy machine a node of Ray gives up when its own agents are slow to answer.
    """
    for _ in range(STARTS - 1):
        with started_cluster() as address:
            try:
                measure(address)
                return
            except HeadscopeError as error:
                if not str(error).startswith("Ray "):  # its own troubles
                    raise
    with started_cluster() as address:
        measure(address)


def test_a_cluster_gives_the_same_bits_also_when_an_actor_is_killed(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    small_shards(monkeypatch)
    corpus = make_corpus(400)
    alone = analyze(tiny_bert, corpus, METRICS)
    killed: list[int] = []

    def kill_one() -> None:
        wait_for_a_shard(tmp_path)
        for process in actors()[:1]:
            process.kill()
            killed.append(process.pid)

    def measure(address: str) -> None:
        threading.Thread(target=kill_one, daemon=True).start()
        result = analyze(
            tiny_bert, corpus, METRICS, engine="ray", workers=2, out=tmp_path, address=address
        )
        assert_same_bits(alone, result)

    on_a_cluster(measure)
    assert killed, "no actor was found to kill"
    assert not ray.is_initialized()


def test_a_dead_cluster_is_one_error_at_the_command_line(
    tiny_bert: Model, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tiny_bert.module.save_pretrained(tmp_path / "model")
    assert tiny_bert.tokenizer is not None
    tiny_bert.tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "corpus.txt").write_text("The cat sat on the mat.\n" * 60_000)

    def kill_cluster() -> None:
        while not actors():  # each loads torch and the model first, for seconds
            time.sleep(0.02)
        kill_in_the_middle("raylet", "gcs_server")

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
