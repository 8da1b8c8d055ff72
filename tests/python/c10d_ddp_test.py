"""Cases of DDP and of helpers in PyTorch's test_c10d_gloo.py, as calls of the backend "psring": Debian's package does not
ship that file. Each test has the name of its case. docs/guide/pytorch.md lists the others."""

import copy
import os
import sys
import tempfile
import unittest
import warnings

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)

import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

import psring.torch  # noqa: F401
from c10d_calls import Ranked, equal, refuses

torch.set_num_threads(1)


class Comm(Ranked):
    def test_broadcast_coalesced_gloo_cpu(self):
        def call(pg, rank, size):
            kinds = (torch.float32, torch.float16, torch.float64, torch.float32, torch.int64)
            for source in range(2):
                tensors = [torch.full((60,), rank * 10 + i, dtype=k) for i, k in enumerate(kinds * 3)]
                dist._broadcast_coalesced(pg, tensors, 256, source)
                for i, t in enumerate(tensors):
                    equal(t, source * 10 + i)

        self.each(call, 2)

    def test_gloo_barrier_device_ids(self):
        def call(pg, rank, size):
            if torch.__version__.startswith("1."):
                refuses(lambda: dist.barrier(device_ids=[rank]))
            else:  # PyTorch 2 asks the backend, and gloo ignores it
                dist.barrier(device_ids=[rank])

        self.each(call, 2)

    def test_gloo_warn_not_in_group_and_rank_membership(self):
        def call(pg, rank, size):
            part = dist.new_group([0, 1])
            if rank > 1:
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    dist.all_reduce(torch.zeros(1), group=part)
                assert told, "no warning"
            assert dist.get_rank(part) == (rank if rank < 2 else -1)

        self.each(call, 3)


class Two(nn.Module):
    """The second layer is not used with `deep=False`."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, deep=True):
        x = torch.relu(self.first(x))
        return self.second(x) if deep else x


class DistributedDataParallelTest(Ranked):
    def test_gloo_backend_cpu_module_and_grad_is_view(self):
        def call(pg, rank, size):
            x = torch.arange(4.0 * size).reshape(size, 4)
            alone = Two()
            alone(x).pow(2).mean().backward()
            for view in (False, True):
                net = DDP(Two(), gradient_as_bucket_view=view)
                net(x[rank : rank + 1]).pow(2).mean().backward()
                for ours, theirs in zip(net.module.parameters(), alone.parameters()):
                    torch.testing.assert_close(ours.grad, theirs.grad)

        self.each(call, 2)

    def test_global_local_unused_params_grad(self):
        def call(pg, rank, size):
            for deep, used in ((False, False), (rank == 0, True)):  # unused at all ranks, then at one
                net = DDP(Two(), find_unused_parameters=True)
                net(torch.ones(1, 4), deep).sum().backward()
                assert (net.module.second.weight.grad is not None) == used, (rank, deep)

        self.each(call, 2)

    def test_ignored_output_with_unused_parameters(self):
        def call(pg, rank, size):
            net = DDP(Two(), find_unused_parameters=True)
            for _ in range(4):
                net(torch.ones(2, 4), deep=False)  # a pass whose output nobody uses
            net(torch.ones(2, 4)).sum().backward()
            assert all(p.grad is not None for p in net.parameters())

        self.each(call, 2)

    def test_save_load_checkpoint(self):
        def call(pg, rank, size, path):
            net = DDP(Two())
            update = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(3):
                update.zero_grad()
                net(torch.full((1, 4), float(rank))).pow(2).sum().backward()
                update.step()
            if rank == 0:
                torch.save(net.state_dict(), path)
            dist.barrier()
            again = DDP(Two())
            again.load_state_dict(torch.load(path))
            assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters()))

        with tempfile.TemporaryDirectory() as folder:
            self.each(lambda pg, rank, size: call(pg, rank, size, os.path.join(folder, "saved")), 2)

    def test_sparse_gradients(self):
        """The rows of all ranks, as a coalesced gradient. A rank may have none."""

        def call(pg, rank, size):
            torch.manual_seed(0)
            net = nn.EmbeddingBag(10, 3, sparse=True, mode="sum")
            alone = copy.deepcopy(net)
            wrapped = DDP(net)
            for keys in ([[0, 2], [1, 2]], [[3, 3], [3, 3]], [[], [1, 9]]):  # by rank
                batches = [(torch.tensor(each, dtype=torch.int64), torch.tensor([0])) for each in keys]
                net.zero_grad()
                alone.zero_grad()
                wrapped(*batches[rank]).sum().backward()
                for each in batches:
                    (alone(*each).sum() / size).backward()
                assert net.weight.grad.is_sparse
                assert torch.allclose(net.weight.grad.to_dense(), alone.weight.grad.to_dense(), atol=1e-6)

        self.each(call, 2)

    def test_ddp_comm_hook_sparse_gradients(self):
        def call(pg, rank, size):
            net = DDP(nn.EmbeddingBag(10, 3, sparse=True, mode="sum"))
            net.register_comm_hook(
                dist.group.WORLD,
                lambda state, bucket: dist.all_reduce(bucket.buffer(), group=state, async_op=True)
                .get_future()
                .then(lambda each: each.value()[0]),
            )
            net(torch.tensor([[rank, 2]])).sum().backward()
            gradient = net.module.weight.grad.to_dense()[:, 0]
            assert gradient.tolist() == [1, 1, 2, 0, 0, 0, 0, 0, 0, 0], gradient

        self.each(call, 2)

    def test_ddp_comm_hook_future_passing_cpu(self):
        def call(pg, rank, size):
            net = DDP(Two())

            def hook(state, bucket):
                done = dist.all_reduce(bucket.buffer(), group=state, async_op=True).get_future()
                return done.then(lambda each: 2 * each.value()[0])

            net.register_comm_hook(dist.group.WORLD, hook)
            net(torch.ones(1, 4)).sum().backward()
            alone = Two()
            alone(torch.ones(1, 4)).sum().backward()
            for ours, theirs in zip(net.module.parameters(), alone.parameters()):
                torch.testing.assert_close(ours.grad, 2 * size * theirs.grad)
            refuses(lambda: net.register_comm_hook(None, hook))

        self.each(call, 2)


if __name__ == "__main__":
    unittest.main()
