"""Memory that operations read and write lives until they are complete, and no longer: with freed memory overwritten."""

import gc
import os
import sys
import tempfile
import threading
import unittest
import weakref

if "MALLOC_PERTURB_" not in os.environ:  # malloc reads it once, when the process starts
    os.execve(sys.executable, [sys.executable, "-B", *sys.argv], {**os.environ, "MALLOC_PERTURB_": "165"})

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)

import torch.distributed as dist
from torch import nn

import psring
import psring.torch  # noqa: F401
from ranks import run

TCP = {"PSRING_OPTIONS": "--transport tcp"}


def living(references):
    gc.collect()
    return sum(reference() is not None for reference in references)


def waited_for(rank, size):
    references = []
    for _ in range(20):
        tensor = torch.ones(1000)
        references.append(weakref.ref(tensor))
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        assert tensor[0] == size
        del tensor, work
    dist.barrier()  # the last one's tensor goes with the next operation
    return living(references)


def never_waited_for(rank, size):
    references = []
    for _ in range(20):
        tensor = torch.ones(1000)
        references.append(weakref.ref(tensor))
        dist.all_reduce(tensor, async_op=True)
        del tensor
    for _ in range(2):
        dist.barrier()
    return living(references)


def many_threads(rank, size):
    """Several threads wait for one work, and one asks whether it is complete."""
    for _ in range(200):
        tensor = torch.ones(5000)
        work = dist.all_reduce(tensor, async_op=True)
        seen = []

        def wait():
            work.wait()
            seen.append(float(tensor[4999]))

        threads = [threading.Thread(target=wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        work.is_completed()
        for thread in threads:
            thread.join()
        assert seen == [size] * 4, seen


def futures(rank, size):
    kept = [dist.all_reduce(torch.ones(100), async_op=True).get_future() for _ in range(100)]
    return {float(future.wait()[0][99]) for future in kept}


def begun_anew(rank, size, rounds, path):
    """Descriptors and threads after each round of init_process_group and destroy_process_group."""
    store = dist.FileStore(path, size)
    seen = []
    for _ in range(rounds):
        dist.init_process_group("psring", store=dist.PrefixStore(str(len(seen)), store), rank=rank, world_size=size)
        tensor = torch.ones(100000)
        dist.all_reduce(tensor, async_op=True).get_future().wait()
        group = dist.new_group([0, 1])
        dist.all_reduce(tensor, group=group)
        del group
        dist.destroy_process_group()
        seen.append((len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))))
    return seen


def many_groups(rank, size):
    """More groups, one after another, than live at once in any program. Returns what later ones cost: KiB a group."""
    sizes = []
    for n in range(400):
        group = dist.new_group([0, 1])
        tensor = torch.ones(10)
        dist.all_reduce(tensor, group=group)
        if rank == 0:
            dist.send(tensor, 1, group=group)
        else:
            dist.recv(tensor, 0, group=group)
        dist.destroy_process_group(group)
        if n % 200 == 199:
            with open("/proc/self/statm") as memory:
                sizes.append(int(memory.read().split()[1]) * 4)
    return (sizes[1] - sizes[0]) / 200


def dropped_by_the_collector(rank, size):
    """Works in cycles: the garbage collector drops them, in the middle of other calls."""
    job = dist.distributed_c10d._get_default_group().job
    for _ in range(1000):
        cycle = []
        cycle += [cycle, dist.all_reduce(torch.ones(10), async_op=True)]
    gc.collect()
    for _ in range(2):
        dist.barrier()
    return len(job.dropped._works)


def many_buckets(rank, size):
    """The parameters' sum after some steps of DDP."""
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*[nn.Linear(32, 32) for _ in range(40)]), bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(rank)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(8, 32, generator=draw)).square().mean().backward()
        optimizer.step()
    return sum(float(parameter.double().sum()) for parameter in model.parameters())


class Lifetimes(unittest.TestCase):
    def results(self, function):
        return [result for environment in ({}, TCP) for result in run(function, 2, "psring", environment)]

    def test_tensors_go_with_their_work(self):
        self.assertEqual(self.results(waited_for), [0] * 4)
        self.assertEqual(self.results(never_waited_for), [0] * 4)

    def test_threads_share_a_work(self):
        self.results(many_threads)

    def test_futures_keep_their_tensors(self):
        self.assertEqual(self.results(futures), [{2.0}] * 4)

    def test_works_that_the_collector_drops(self):
        self.assertEqual(self.results(dropped_by_the_collector), [0] * 4)

    def test_nothing_is_left_of_a_process_group(self):
        with tempfile.TemporaryDirectory() as folder:
            for seen in run(begun_anew, 2, None, {}, (12, f"{folder}/store")):
                # A thread that was told to end may still be there in some rounds, and PyTorch starts its own in the first ones.
                for before, later in zip(zip(*seen[4:8]), zip(*seen[8:])):
                    self.assertLessEqual(min(later), max(before), seen)

    @unittest.skipIf("libasan" in os.environ.get("LD_PRELOAD", ""), "AddressSanitizer keeps memory that was freed")
    def test_many_groups(self):
        self.assertLess(max(self.results(many_groups)), 64)

    def test_many_buckets(self):
        self.assertEqual(set(self.results(many_buckets)), set(run(many_buckets, 2, "gloo")))


if __name__ == "__main__":
    unittest.main()
