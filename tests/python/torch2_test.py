"""What PyTorch 2 builds on process groups, over psring and over gloo: the same numbers."""

import importlib.metadata
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)
if torch.__version__ < "2.6":
    print(f"SKIPPED: PyTorch {torch.__version__}: DTensor, FSDP2 and pipelines are what they are since 2.6")
    sys.exit(0)

import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import psring.torch
from ranks import run

torch.set_num_threads(1)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


def losses(rank, model, clip=False):
    """Of five steps, on data of the rank's own."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1 + rank)
    found = []
    for _ in range(5):
        loss = model(torch.randn(4, 8, generator=generator)).square().mean()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def collectives(rank, size):
    world = dist.group.WORLD
    x = torch.arange(4.0) + rank
    found = [
        functional.all_reduce(x, "sum", world),
        functional.all_gather_tensor(x, 0, world),
        functional.reduce_scatter_tensor(torch.arange(8.0) * (rank + 1), "sum", 0, world),
        functional.all_to_all_single(torch.arange(4.0) + 10 * rank, None, None, world),
        functional.broadcast(x, 1, world),
        *functional.all_reduce_coalesced([x, 2 * x], "sum", world),
        *functional.all_gather_into_tensor_coalesced([x, 2 * x], world),
        *functional.reduce_scatter_tensor_coalesced([torch.arange(8.0) * (rank + 1)] * 2, "sum", [0, 0], world),
    ]
    return [functional.wait_tensor(each).tolist() for each in found]


def compiled_collective(rank, size):
    def call(x):
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    return torch.compile(call, backend="aot_eager")(torch.arange(4.0) + rank).tolist()


def meshes(rank, size):
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicas", "shards"))
    found = [mesh.get_coordinate()]
    for name in ("replicas", "shards"):
        x = torch.ones(3) * rank
        dist.all_reduce(x, group=mesh[name].get_group())
        found.append(x.tolist())
    return found


def dtensor(rank, size):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(0)
    a = distribute_tensor(torch.randn(8, 6), mesh, [Shard(0)])
    b = distribute_tensor(torch.randn(6, 8), mesh, [Shard(1)])
    product = (a @ b).redistribute(mesh, [Replicate()])
    other = a.redistribute(mesh, [Shard(1)])
    return product.to_local().tolist(), other.to_local().tolist(), other.full_tensor().tolist()


def tensor_parallel(rank, size):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return losses(0, parallelize_module(net(), init_device_mesh("cpu", (size,)), plan))


def sharded_1(rank, size):
    from torch.distributed.fsdp import FullyShardedDataParallel

    return losses(rank, FullyShardedDataParallel(net(), device_id=torch.device("cpu")))


def fully_sharded(size):
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (size,))
    model = net()
    for part in (model[0], model[2]):
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def sharded_2(rank, size):
    return losses(rank, fully_sharded(size), clip=True)


def sharded_2_in_a_mesh(rank, size):
    from torch.distributed.fsdp import fully_shard

    return losses(rank, fully_shard(net(), mesh=init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("r", "s"))))


def checkpoint(rank, size, asynchronous):
    import torch.distributed.checkpoint as checkpoints
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model = fully_sharded(size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, 0)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    if asynchronous:
        # PyTorch asks for a group whose backend is written in C++. Only the thread that saves uses it.
        group = dist.new_group(backend="gloo")
        checkpoints.async_save(state, checkpoint_id=folder[0], process_group=group).result()
    else:
        checkpoints.save(state, checkpoint_id=folder[0])
    expected = [p.full_tensor().tolist() for p in model.parameters()]
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    model_state, optimizer_state = get_state_dict(model, optimizer)
    checkpoints.load({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder[0])
    set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
    assert [p.full_tensor().tolist() for p in model.parameters()] == expected
    return expected


def compiled(rank, size):
    return losses(rank, torch.compile(nn.parallel.DistributedDataParallel(net()), backend="aot_eager"))


def pipeline(rank, size):
    from torch.distributed import pipelining

    found = []
    for schedule in (pipelining.ScheduleGPipe, pipelining.Schedule1F1B):
        torch.manual_seed(0)
        layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(size)])
        stage = pipelining.PipelineStage(layers[rank], rank, size, torch.device("cpu"))
        runs = schedule(stage, n_microbatches=4, loss_fn=lambda y, target: (y - target).square().mean())
        x, target = torch.randn(8, 8), torch.randn(8, 8)
        given = [x] if rank == 0 else []
        keywords = {"target": target, "losses": []} if rank == size - 1 else {}
        runs.step(*given, **keywords)
        found.append([float(loss) for loss in keywords.get("losses", [])] + layers[rank].weight.grad.flatten().tolist())
    return found


class OverPsringAsOverGloo(unittest.TestCase):
    def check(self, call, size=2, arguments=(), gloo_hangs=False):
        ours = run(call, size, "psring", arguments=arguments)
        if not gloo_hangs:
            self.assertEqual(ours, run(call, size, "gloo", arguments=arguments))

    def needs_streams(self):
        if torch.__version__ < "2.7":
            self.skipTest(f"PyTorch {torch.__version__}: FSDP2 on the CPU fails over every backend (no Stream.record_event)")

    def test_functional_collectives(self):
        self.check(collectives)
        self.check(compiled_collective)

    def test_device_mesh(self):
        self.check(meshes, 4)

    def test_dtensor(self):
        self.check(dtensor)

    def test_tensor_parallelism(self):
        self.check(tensor_parallel)

    def test_fsdp_1(self):
        self.check(sharded_1)

    def test_fsdp_2(self):
        self.needs_streams()
        self.check(sharded_2)
        self.check(sharded_2_in_a_mesh, 4)

    def test_distributed_checkpoint(self):
        self.needs_streams()
        self.check(checkpoint, arguments=(False,))
        self.check(checkpoint, arguments=(True,))

    def test_the_wheel_needs_no_import(self):
        """PyTorch finds the backend by the wheel's entry point."""
        program = (
            "import torch.distributed as dist\n"
            "dist.init_process_group('psring', store=dist.HashStore(), rank=0, world_size=1)\n"
            "dist.barrier()\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        if "psring" not in {each.name for each in importlib.metadata.entry_points(group="torch.backends")}:
            self.skipTest("run from the source tree, without a wheel")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_compiled_ddp(self):
        self.check(compiled)

    def test_pipelines(self):
        self.check(pipeline, gloo_hangs=torch.__version__ < "2.7")

    def test_compiled_wrappers_train_as_they_are(self):
        """Sharded and ParameterServer, compiled and not."""

        def train(rank, size, wrap, compiles):
            module = net()
            optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
            model = wrap(module, optimizer)
            called = torch.compile(model, backend="aot_eager") if compiles else model
            generator = torch.Generator().manual_seed(1 + rank)
            found = []
            for _ in range(4):
                loss = called(torch.randn(4, 8, generator=generator)).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                found.append(loss.item())
            return found

        for wrap in (
            lambda m, o: psring.torch.Sharded(m, o, stage=3),
            lambda m, o: psring.torch.ParameterServer(m, o),
            lambda m, o: psring.torch.ParameterServer(m, o, zero=3),
        ):
            plain, compiled_ = (run(train, 2, "psring", arguments=(wrap, compiles)) for compiles in (False, True))
            self.assertEqual(plain, compiled_)

    def test_compiled_tables(self):
        """Modules with tables, compiled and not."""

        def train(rank, size, compiles):
            tables = psring.torch.Tables(servers=2, lr=0.1)
            torch.manual_seed(3)
            embedding = torch.nn.Embedding(50, 8, sparse=True)
            model = torch.nn.Sequential(embedding, torch.nn.Flatten(), torch.nn.Linear(24, 8), torch.nn.Tanh())
            psring.torch.convert(model, tables)
            model.bag = tables.EmbeddingBag("bag", 8, mode="sum", padding_idx=3)
            optimizer = torch.optim.SGD([*model.parameters()], lr=0.1)
            tables.attach(optimizer)

            def call(keys):
                return (model[3](model[2](model[1](model[0](keys)))) * model.bag(keys)).square().mean()

            called = torch.compile(call, backend="aot_eager") if compiles else call
            generator = torch.Generator().manual_seed(1 + rank)
            found = []
            for _ in range(4):
                loss = called(torch.randint(0, 50, (4, 3), generator=generator))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                found.append(loss.item())
            tables.close()
            return found

        plain, compiled_ = (run(train, 2, arguments=(compiles,)) for compiles in (False, True))
        self.assertEqual(plain, compiled_)

    @unittest.skipUnless(hasattr(torch.compiler, "is_exporting"), "since PyTorch 2.7 a module can tell that it is exported")
    def test_an_export_of_tables_is_refused(self):
        def export(rank, size, strict):
            tables = psring.torch.Tables(lr=0.1)
            model = torch.nn.Sequential(tables.Embedding("words", 4))
            try:
                torch.export.export(model, (torch.tensor([1]),), strict=strict)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
            finally:
                tables.close()

        said = "psring: table 'words': torch.export has no rows, which are at servers: call the module itself"
        self.assertEqual(run(export, 1, arguments=(False,)), [f"UsageError: {said}"])
        self.assertIn(said, run(export, 1, arguments=(True,))[0])  # among the lines of the compiler


if __name__ == "__main__":
    unittest.main()
