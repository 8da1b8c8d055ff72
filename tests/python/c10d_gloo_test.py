"""The process group's cases of PyTorch's test_c10d_gloo.py, as calls of the backend "psring": Debian's package does not
ship that file. Each test has the name of its case. docs/guide/pytorch.md lists the others."""

import sys
import unittest

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)

import torch.distributed as dist
from torch.utils._pytree import tree_map

import psring.torch  # noqa: F401
from c10d_calls import Ranked, equal, options, refuses, root

TIMES = 200  # operations in flight in a test of stress
torch.set_num_threads(1)


class ProcessGroupGloo(Ranked):
    def test_empty_tensors(self):
        def call(pg, rank, size):
            tensors = [torch.zeros(0)]
            pg.broadcast(tensors, root(dist.BroadcastOptions, 0)).wait()
            pg.allreduce(tensors).wait()
            assert tensors[0].numel() == 0

        self.each(call)

    def test_means_of_integers(self):
        """Divided towards zero, as NCCL does; gloo refuses them."""

        def call(pg, rank, size):
            for dtype in (torch.int64, torch.int32, torch.uint8):
                total = sum(range(size))
                whole = torch.tensor([3, 5, 7], dtype=dtype) * rank
                dist.all_reduce(whole, op=dist.ReduceOp.AVG)
                equal(whole, torch.tensor([3, 5, 7], dtype=dtype) * total // size)
                strided = (torch.tensor([[3, 0], [5, 0]], dtype=dtype) * rank)[:, 0]
                dist.all_reduce(strided, op=dist.ReduceOp.AVG)
                equal(strided, torch.tensor([3, 5], dtype=dtype) * total // size)
                part = torch.zeros(2, dtype=dtype)
                dist.reduce_scatter(part, [torch.tensor([rank, r], dtype=dtype) for r in range(size)], op=dist.ReduceOp.AVG)
                equal(part, torch.tensor([total // size, rank], dtype=dtype))
            negative = torch.tensor([-1 - rank])
            dist.all_reduce(negative, op=dist.ReduceOp.AVG)
            equal(negative, torch.tensor([-(size * (size + 1) // 2 // size)]))

        self.each(call)

    def test_broadcast_checks(self):
        def call(pg, rank, size):
            t = torch.zeros(1)
            at = lambda rank, tensor=0: options(dist.BroadcastOptions, rootRank=rank, rootTensor=tensor)  # noqa: E731
            refuses(
                lambda: pg.broadcast([t], at(-1)),
                lambda: pg.broadcast([t], at(size)),
                lambda: pg.broadcast([t], at(0, 1)),
                lambda: pg.broadcast([], at(0)),
                lambda: pg.broadcast([t, t.double()], at(0)),
            )

        self.each(call)

    def test_broadcast_basics(self):
        def call(pg, rank, size):
            for source in range(size):
                t = torch.tensor([float(rank)])
                work = pg.broadcast([t], root(dist.BroadcastOptions, source))
                work.wait()
                equal(work.result()[0], float(source))
                equal(t, float(source))

        self.each(call)

    def test_broadcast_stress(self):
        def call(pg, rank, size):
            tensors = [torch.full((10,), float(i * size + rank)) for i in range(TIMES)]
            works = [pg.broadcast([t], root(dist.BroadcastOptions, i % size)) for i, t in enumerate(tensors)]
            for i, work in enumerate(works):
                work.wait()
                equal(tensors[i], float(i * size + i % size))

        self.each(call)

    def test_allreduce_checks(self):
        def call(pg, rank, size):
            t = torch.zeros(1)
            refuses(lambda: pg.allreduce([]), lambda: pg.allreduce([t, t.double()]), lambda: pg.allreduce([t, t[:0]]))

        self.each(call)

    def test_allreduce_basics(self):
        def call(pg, rank, size):
            for op, start, expected in (
                (dist.ReduceOp.SUM, rank + 1, size * (size + 1) / 2),
                (dist.ReduceOp.PRODUCT, rank + 1, 24 if size == 4 else None),
                (dist.ReduceOp.MIN, rank + 1, 1),
                (dist.ReduceOp.MAX, rank + 1, size),
            ):
                t = torch.tensor([float(start)])
                pg.allreduce([t], options(dist.AllreduceOptions, reduceOp=op)).wait()
                equal(t, expected)
            t = torch.full((2, 3), float(rank))  # a tensor for a list of one
            future = pg.allreduce(t).get_future()
            future.wait()
            equal(future.value()[0], size * (size - 1) / 2)

        self.each(call)

    def test_allreduce_basics_using_work_api(self):
        def call(pg, rank, size):
            t = torch.tensor([float(rank)])
            work = pg.allreduce([t])
            work.wait()
            assert work.is_completed() and work.is_success() and work.exception() is None
            equal(work.result()[0], size * (size - 1) / 2)

        self.each(call)

    def test_allreduce_stress(self):
        def call(pg, rank, size):
            tensors = [torch.tensor([float(i + rank)]) for i in range(TIMES)]
            for i, future in enumerate([pg.allreduce(t).get_future() for t in tensors]):
                future.wait()
                equal(tensors[i], float(i * size + size * (size - 1) // 2))

        self.each(call)

    def test_allreduce_coalesced_basics_and_stress(self):
        def call(pg, rank, size):
            batches = [[torch.full((j + 1,), float(i + j + rank)) for j in range(5)] for i in range(TIMES // 5)]
            works = [pg.allreduce_coalesced(b, dist.AllreduceCoalescedOptions()) for b in batches]
            for i, work in enumerate(works):
                work.wait()
                for j, t in enumerate(batches[i]):
                    equal(t, float((i + j) * size + size * (size - 1) // 2))

        self.each(call)

    def test_allreduce_coalesced_of_one_tensor_twice(self):
        def call(pg, rank, size):
            for op, expected in ((dist.ReduceOp.SUM, 10.0), (dist.ReduceOp.AVG, 2.0)):
                for dtype in (torch.float32, torch.int64):
                    t = torch.tensor([rank + 1], dtype=dtype)
                    opts = options(dist.AllreduceCoalescedOptions, reduceOp=op)
                    pg.allreduce_coalesced([t, t, t], opts).wait()
                    equal(t, 2.5 if op == dist.ReduceOp.AVG and dtype.is_floating_point else expected)

        self.each(call)

    def test_sparse_allreduce_basics(self):
        def call(pg, rank, size):
            for dense in (torch.eye(3) * (rank + 1), torch.zeros(4, 2), torch.arange(6.0).view(2, 3), torch.ones(2, 2, 2)):
                for sparse_dim in range(1, dense.dim() + 1):
                    tensor = dense.to_sparse(sparse_dim)
                    pg.allreduce([tensor]).wait()
                    factor = size * (size + 1) / 2 if dense.shape == (3, 3) else size
                    expected = torch.eye(3) * factor if dense.shape == (3, 3) else dense * size
                    assert tensor.is_sparse and torch.equal(tensor.to_dense(), expected)
            # Elements that only some ranks have, one of them twice.
            tensor = torch.sparse_coo_tensor([[rank, rank, 9]], [1.0, 2.0, 1.0], (10,), dtype=torch.float64)
            pg.allreduce([tensor]).wait()
            expected = torch.zeros(10, dtype=torch.float64)
            expected[:size], expected[9] = 3, size
            assert torch.equal(tensor.to_dense(), expected) and tensor.is_coalesced()

        self.each(call)

    def test_sparse_allreduce_checks(self):
        def call(pg, rank, size):
            refuses(lambda: pg.allreduce([torch.eye(3).to_sparse()], dist.ReduceOp.MAX))
            refuses(lambda: pg.allreduce([torch.eye(3).to_sparse_csr()]))
            if size > 1:
                refuses(lambda: pg.allreduce([torch.eye(3 + rank).to_sparse()]))

        self.each(call)

    def test_a_tensor_that_handles_its_own_operations_is_refused(self):
        """PyTorch 1.13 gives it to a backend of Python as it is: its memory is not its values."""

        class Wrapped(torch.Tensor):
            @staticmethod
            def __new__(cls, inner):
                made = torch.Tensor._make_subclass(cls, inner)
                made.inner = inner
                return made

            @classmethod
            def __torch_dispatch__(cls, function, kinds, arguments=(), keywords=None):
                if "c10d" in str(function):  # PyTorch 2 asks the tensor
                    raise NotImplementedError(str(function))
                inner = tree_map(lambda each: each.inner if isinstance(each, Wrapped) else each, arguments)
                return function(*inner, **(keywords or {}))

        def call(pg, rank, size):
            refuses(lambda: pg.allreduce([Wrapped(torch.ones(2))]), lambda: pg.broadcast([Wrapped(torch.ones(2))]))

        self.each(call)

    def test_scatter_checks(self):
        def call(pg, rank, size):
            t = torch.zeros(1)
            at = lambda rank: root(dist.ScatterOptions, rank)  # noqa: E731
            mine = [[t] * size] if rank == 0 else []
            refuses(
                lambda: pg.scatter([t], mine, at(-1)),
                lambda: pg.scatter([t], mine, at(size)),
                lambda: pg.scatter([t, t], mine, at(0)),
                lambda: pg.scatter([], mine, at(0)),
                lambda: pg.scatter([t], [] if rank == 0 else [[t] * size], at(0)),
                lambda: pg.scatter([t], [[t] * (size - 1)], at(rank)),
                lambda: pg.scatter([t], [[t] * size, [t] * size], at(rank)),
                lambda: pg.scatter([t], [[t.double()] * size], at(rank)),
            )

        self.each(call)

    def test_scatter_basics_and_stress(self):
        def call(pg, rank, size):
            outputs = [torch.tensor([-1.0]) for _ in range(TIMES)]
            works = []
            for i, out in enumerate(outputs):
                parts = [[torch.tensor([float(i * size + r)]) for r in range(size)]] if rank == i % size else []
                works.append(pg.scatter([out], parts, root(dist.ScatterOptions, i % size)))
            for i, work in enumerate(works):
                work.wait()
                equal(outputs[i], float(i * size + rank))

        self.each(call)

    def test_gather_checks(self):
        def call(pg, rank, size):
            t = torch.zeros(1)
            at = lambda rank: root(dist.GatherOptions, rank)  # noqa: E731
            mine = [[t.clone() for _ in range(size)]] if rank == 0 else []
            refuses(
                lambda: pg.gather(mine, [t], at(-1)),
                lambda: pg.gather(mine, [t], at(size)),
                lambda: pg.gather(mine, [t, t], at(0)),
                lambda: pg.gather(mine, [], at(0)),
                lambda: pg.gather([] if rank == 0 else [[t] * size], [t], at(0)),
                lambda: pg.gather([[t] * (size + 1)], [t], at(rank)),
                lambda: pg.gather([[t] * size, [t] * size], [t], at(rank)),
                lambda: pg.gather([[t.double()] * size], [t], at(rank)),
            )

        self.each(call)

    def test_gather_basics_noncontiguous_input_and_stress(self):
        def call(pg, rank, size):
            sources = [torch.full((2, 2), float(i + rank)).t()[:, :1] for i in range(TIMES)]
            outputs = [[[torch.zeros(2, 1) for _ in range(size)]] if rank == i % size else [] for i in range(TIMES)]
            works = [
                pg.gather(outputs[i], [source], root(dist.GatherOptions, i % size)) for i, source in enumerate(sources)
            ]
            for i, work in enumerate(works):
                work.wait()
                for r in range(size if rank == i % size else 0):
                    equal(outputs[i][0][r], float(i + r))

        self.each(call)

    def test_allgather_checks(self):
        def call(pg, rank, size):
            t = torch.zeros(1)
            whole = [torch.zeros(1) for _ in range(size)]
            refuses(
                lambda: pg.allgather([], [t]),
                lambda: pg.allgather([whole], []),
                lambda: pg.allgather([whole, whole], [t]),
                lambda: pg.allgather([whole], [t, t]),
                lambda: pg.allgather([whole[1:]], [t]),
                lambda: pg.allgather([[*whole, t]], [t]),
                lambda: pg.allgather([[each.double() for each in whole]], [t]),
                lambda: pg.allgather([[torch.zeros(2) for _ in whole]], [t]),
            )

        self.each(call)

    def test_allgather_basics_noncontiguous_input_and_stress(self):
        def call(pg, rank, size):
            sources = [torch.full((2, 3), float(i + rank)).t() for i in range(TIMES)]
            outputs = [[[torch.zeros(3, 2) for _ in range(size)]] for _ in range(TIMES)]
            for i, work in enumerate([pg.allgather(o, [s]) for o, s in zip(outputs, sources)]):
                work.wait()
                for r in range(size):
                    equal(outputs[i][0][r], float(i + r))

        self.each(call)

    def test_allgather_coalesced_checks_and_async(self):
        def call(pg, rank, size):
            shapes = [(1,), (2, 3), (4,)]
            outputs = [[torch.zeros(s) for s in shapes] for _ in range(size)]
            work = pg.allgather_coalesced(outputs, [torch.full(s, float(rank)) for s in shapes])
            work.wait()
            for r in range(size):
                for t in outputs[r]:
                    equal(t, float(r))
            refuses(
                lambda: pg.allgather_coalesced(outputs[1:], [torch.zeros(s) for s in shapes]),
                lambda: pg.allgather_coalesced([[torch.zeros(2)]] * size, [torch.zeros(1)]),
            )

        self.each(call)

    def test_reduce_checks(self):
        def call(pg, rank, size):
            t = torch.zeros(1)
            at = lambda rank, tensor=0: options(dist.ReduceOptions, rootRank=rank, rootTensor=tensor)  # noqa: E731
            refuses(
                lambda: pg.reduce([t], at(-1)),
                lambda: pg.reduce([t], at(size)),
                lambda: pg.reduce([t], at(0, 1)),
                lambda: pg.reduce([t, t], at(0)),
                lambda: pg.reduce([], at(0)),
            )

        self.each(call)

    def test_reduce_basics_and_stress(self):
        def call(pg, rank, size):
            tensors = [torch.tensor([float(i + rank)]) for i in range(TIMES)]
            works = [pg.reduce([t], root(dist.ReduceOptions, i % size)) for i, t in enumerate(tensors)]
            for i, work in enumerate(works):
                work.wait()
                is_root = rank == i % size
                equal(tensors[i], float(i * size + size * (size - 1) // 2 if is_root else i + rank))

        self.each(call)

    def test_reduce_short_forms(self):
        def call(pg, rank, size):
            for target in range(size):
                total, most = torch.tensor([float(rank)]), torch.tensor([float(rank)])
                pg.reduce(total, target).wait()
                pg.reduce(most, target, dist.ReduceOp.MAX).wait()
                equal(total, float(size * (size - 1) // 2 if rank == target else rank))
                equal(most, float(size - 1 if rank == target else rank))
                named = torch.tensor([float(rank)])  # by the names of PyTorch's own groups
                pg.reduce(named, root=target, op=dist.ReduceOp.MIN).wait()
                equal(named, 0.0 if rank == target else float(rank))
                pg.broadcast(named.fill_(rank), root=target).wait()
                equal(named, float(target))
                pg.allreduce(named, op=dist.ReduceOp.SUM).wait()
                equal(named, float(target * size))
                refuses(lambda: pg.allreduce(named, dist.AllreduceOptions(), op=dist.ReduceOp.MAX))
                everywhere = [torch.tensor([float(10 * r)]) for r in range(size)]
                pg.scatter(named, everywhere if rank == target else [], root=target).wait()
                equal(named, 10.0 * rank)
                pg.gather(everywhere if rank == target else [], named + 1, root=target).wait()
                if rank == target:
                    equal(torch.cat(everywhere), torch.arange(size) * 10.0 + 1)
                pg.reduce_scatter(named, [torch.tensor([float(rank)])] * size, op=dist.ReduceOp.MAX).wait()
                equal(named, float(size - 1))

        self.each(call)

    def test_send_recv_all_to_all(self):
        def call(pg, rank, size):
            peers = [r for r in range(size) if r != rank]
            got = {r: torch.tensor([-1.0]) for r in peers}
            works = [pg.send([torch.tensor([float(rank)])], r, 0) for r in peers]
            works += [pg.recv([got[r]], r, 0) for r in peers]
            for work in works:
                work.wait()
                assert work.is_completed()
            for r in peers:
                equal(got[r], float(r))
            if rank == 0:  # the same from any rank
                seen = set()
                for _ in peers:
                    t = torch.zeros(1)
                    work = pg.recv_anysource([t], 1)
                    work.wait()
                    equal(t, float(work.source_rank()))
                    seen.add(work.source_rank())
                assert seen == set(peers)
            else:
                pg.send([torch.tensor([float(rank)])], 0, 1).wait()

        self.each(call)

    def test_barrier_implies_wait(self):
        def call(pg, rank, size):
            tensors = [torch.full((100, 100), float(i)) for i in range(100)]
            for t in tensors:
                pg.allreduce(t)
            pg.barrier().wait()
            for i, t in enumerate(tensors):
                equal(t, float(i * size))

        self.each(call)


if __name__ == "__main__":
    unittest.main()
