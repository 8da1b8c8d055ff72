"""Calls every collective of torch.distributed; returns what each left in the tensors, as arrays. The tensors are on the
device that is the default one (with torch.device(...), from PyTorch 2 on)."""

import torch
import torch.distributed as dist

TYPES = [torch.float32, torch.float64, torch.float16, torch.int8, torch.uint8, torch.int32, torch.int64]


def values(shape, dtype, rank, seed=0):
    generator = torch.Generator("cpu").manual_seed(1000 * seed + rank)
    device = torch.empty(0).device
    if dtype.is_floating_point:
        return (torch.rand(shape, generator=generator, device="cpu") * 2 - 1).to(device, dtype)
    return torch.randint(0, 5, shape, generator=generator, device="cpu").to(device, dtype)


def run(rank, size):
    left = {}

    def keep(name, *tensors):
        assert name not in left, name
        left[name] = [t.cpu().numpy().copy() for t in tensors]

    for dtype in TYPES:
        for name in ("SUM", "PRODUCT", "MIN", "MAX"):
            t = values((3, 5), dtype, rank)
            dist.all_reduce(t, getattr(dist.ReduceOp, name))
            keep(f"all_reduce {name} {dtype}", t)
    for name in ("BAND", "BOR", "BXOR"):
        t = values((7,), torch.int32, rank)
        dist.all_reduce(t, getattr(dist.ReduceOp, name))
        keep(f"all_reduce {name}", t)
    for shape in ((), (0,), (1,), (1023,), (300_000,)):
        t = values(shape, torch.float32, rank)
        dist.all_reduce(t)
        keep(f"all_reduce {shape}", t)
    works = [(values((1000,), torch.float32, rank, i)) for i in range(100)]
    pending = [dist.all_reduce(t, async_op=True) for t in works]
    for work in pending:
        work.wait()
    keep("100 all_reduces in flight", *works)
    tensors = [values((4,), torch.float32, rank, i) for i in range(3)]
    dist.all_reduce_coalesced(tensors)
    keep("all_reduce_coalesced", *tensors)
    for root in range(size):
        for dtype in TYPES:
            t = values((4, 3), dtype, rank)
            dist.broadcast(t, root)
            keep(f"broadcast {root} {dtype}", t)
        t = values((6,), torch.float32, rank)
        dist.reduce(t, root)
        keep(f"reduce {root}", *([t] if rank == root else []))
        out = [torch.zeros(3) for _ in range(size)] if rank == root else None
        dist.gather(values((3,), torch.float32, rank), out, root)
        keep(f"gather {root}", *(out or []))
        t = torch.zeros(3)
        parts = [values((3,), torch.float32, r, 5) for r in range(size)] if rank == root else None
        dist.scatter(t, parts, root)
        keep(f"scatter {root}", t)
    for dtype in TYPES:
        out = [torch.zeros(2, 3, dtype=dtype) for _ in range(size)]
        dist.all_gather(out, values((2, 3), dtype, rank))
        keep(f"all_gather {dtype}", *out)
    out = [[torch.zeros(2), torch.zeros(3)] for _ in range(size)]
    dist.all_gather_coalesced(out, [values((2,), torch.float32, rank), values((3,), torch.float32, rank)])
    keep("all_gather_coalesced", *(t for each in out for t in each))
    for start in range(size):  # a message around the ring
        t = values((5,), torch.float32, rank)
        if rank == start:
            dist.send(t, (rank + 1) % size)
        elif rank == (start + 1) % size:
            dist.recv(t, start)
        keep(f"send {start}", t)
    if rank == 0:
        for work in [dist.isend(torch.full((3,), float(tag)), 1, tag=tag) for tag in (1, 2, 3)]:
            work.wait()
    elif rank == 1:
        got = [torch.zeros(3) for _ in range(3)]
        for i, tag in enumerate((3, 1, 2)):  # in another order than they were sent
            dist.recv(got[i], 0, tag=tag)
        keep("tags", *got)
    if rank == 0:
        got = []
        for _ in range(size - 1):
            t = torch.zeros(2)
            source = dist.recv(t)
            got.append((source, t))
        keep("recv from any", *(t for _, t in sorted(got, key=lambda each: each[0])))
    else:
        dist.send(torch.full((2,), float(rank)), 0)
    dist.barrier()  # a later message of one rank must not come before the first one of another
    big = torch.full((100_000,), float(rank))
    into = torch.zeros(100_000)
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, big, (rank + 1) % size), dist.P2POp(dist.irecv, into, (rank - 1) % size)]
    )
    for work in works:
        work.wait()
    keep("batch_isend_irecv", into)
    t = values((10,), torch.float32, rank)
    future = dist.all_reduce(t, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    keep("future", doubled.wait())
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * (10 * rank)})
    assert objects == [{"rank": r, "text": "x" * (10 * r)} for r in range(size)], objects
    shared = [["a", rank], rank] if rank == 0 else [None, None]
    dist.broadcast_object_list(shared, 0)
    assert shared == [["a", 0], 0], shared
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(rank * 3, gathered, 0)
    assert rank != 0 or gathered == [3 * r for r in range(size)]
    scattered = [None]
    dist.scatter_object_list(scattered, list(range(10, 10 + size)) if rank == 0 else None, 0)
    assert scattered == [10 + rank], scattered
    dist.barrier()
    groups = [dist.new_group([r for r in range(size) if r % 2 == odd]) for odd in (0, 1)]
    pairs = dist.new_group([0, size - 1])
    t = values((9,), torch.float32, rank)
    dist.all_reduce(t, group=groups[rank % 2])
    keep("all_reduce in a group", t)
    if rank in (0, size - 1):
        dist.broadcast(t, size - 1, group=pairs)
        keep("broadcast in a group", t)
        if rank == 0:
            dist.send(t, size - 1, group=pairs, tag=4)
        else:
            dist.recv(t, 0, group=pairs, tag=4)
        keep("send in a group", t)
        dist.barrier(group=pairs)
    return left
