"""Shards on a Ray cluster: Ray Data streams them to a pool of actors.

Each actor loads the model once. Ray schedules shards, holds back those that do not fit into
memory, and replaces actors that die. States come back as bytes; this process writes them to the
same checkpoint files as the local engine, so that each engine can resume a run of the other.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import torch

from headscope.atomic import atomic_path
from headscope.errors import MissingExtra
from headscope.model.model import Model
from headscope.run.checkpoint import Ledger, Stamp, dump_measured
from headscope.run.engines.local import n_cores
from headscope.run.plan import Plan, Shard
from headscope.run.progress import Meter
from headscope.run.shard import measure_shard, prepare

try:
    import pyarrow as pa
    import ray
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask
except ImportError as error:
    raise MissingExtra.of("ray", "ray", "engine='ray'") from error

SHARDS_PER_BLOCK = 1


class _Actor:
    """Measures shards in one of Ray's processes."""

    def __init__(self, packed: list[ray.ObjectRef[bytes]], plan: Plan) -> None:
        torch.set_num_threads(plan.settings.threads)
        self._model: Model = pickle.loads(ray.get(packed[0]))
        self._plan = plan
        prepare(plan)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        states = []
        for content in batch["shard"]:
            file = io.BytesIO()
            shard: Shard = pickle.loads(content)
            measured = measure_shard(self._model, self._plan, shard)
            dump_measured(file, measured, Stamp(self._plan.hash, shard.id))
            states.append(file.getvalue())
        return {"id": list(batch["id"]), "documents": list(batch["documents"]), "states": states}


class _ShardSource(Datasource):  # type: ignore[misc, unused-ignore]
    """The shards of a plan, read from the corpus as fast as they are measured."""

    def __init__(self, shards: Callable[[], Iterator[Shard]]) -> None:
        self._shards = shards

    def estimate_inmemory_data_size(self) -> int | None:
        """Unknown."""
        return None

    def get_read_tasks(self, parallelism: int, *args: object, **options: object) -> list[ReadTask]:
        """One task that goes through the corpus."""
        shards = self._shards
        unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)

        def blocks() -> Iterator[Any]:
            for shard in shards():
                yield pa.table(
                    {
                        "id": [shard.id],
                        "documents": [len(shard.documents)],
                        "shard": pa.array([pickle.dumps(shard)], pa.large_binary()),
                    }
                )

        return [ReadTask(blocks, unknown)]


def run_ray(
    model: Model,
    plan: Plan,
    shards: Callable[[], Iterator[Shard]],
    ledger: Ledger,
    meter: Meter,
    workers: int,
    address: str | None,
) -> None:
    """Measure by actors of a Ray cluster.

    Args:
        model: the model.
        plan: the plan.
        shards: a function that gives the shards; called in a process of Ray's.
        ledger: where states are kept.
        meter: progress.
        workers: how many actors.
        address: of a cluster (`auto`, `ray://host:10001`); None starts Ray here, unless it
            runs already.
    """
    is_ours = not ray.is_initialized()
    if is_ours:
        cores = None if address else max(n_cores(), workers * plan.settings.threads)
        # Without an address Ray would look for a cluster on this machine, even one that is gone.
        ray.init(
            address=address or "local",
            include_dashboard=None if address else False,
            log_to_driver=False,
            num_cpus=cores,
        )
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = False
        packed = ray.put(pickle.dumps(model))
        # Reading reserves no core: otherwise it would wait for actors that wait for it.
        source = ray.data.read_datasource(
            _ShardSource(shards), ray_remote_args={"num_cpus": 0}, override_num_blocks=1
        )
        measured = source.map_batches(
            _Actor,
            fn_constructor_args=([packed], plan),
            batch_size=SHARDS_PER_BLOCK,
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_cpus=plan.settings.threads,
        )
        for row in measured.iter_rows():
            with atomic_path(ledger.path(int(row["id"]))) as temporary:
                temporary.write_bytes(row["states"])
            ledger.fold()
            meter.advance(int(row["documents"]))
    finally:
        if is_ours:
            ray.shutdown()
