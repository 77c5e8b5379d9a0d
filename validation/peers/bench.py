"""What the peer benchmarks share: timing, ranks, and the environment they run in."""

import os
import statistics
import sys
import tempfile
import time

# NVLink multicast stays off. Read by NCCL and by PyTorch when they first start.
os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402


def restart_with(settings):
    """Start this program again with the environment variables of settings, where they differ:
    the C library, OpenMP and the BLAS read them only when the process starts."""
    if any(os.environ.get(k) != v for k, v in settings.items()):
        if os.environ.get("PEER_RESTARTED"):
            sys.exit(f"cannot set {settings}")
        os.environ.update(settings, PEER_RESTARTED="1")
        os.execv(sys.executable, [sys.executable] + sys.argv)


def times_ms(fn, device, warmup, repeats, batch=1):
    """Milliseconds of fn, `repeats` values, each the mean over `batch` calls one after another:
    by events on a GPU, by the clock on a CPU."""
    for _ in range(warmup):
        fn()
    if device.type == "cpu":
        values = []
        for _ in range(repeats):
            start = time.perf_counter()
            for _ in range(batch):
                fn()
            values.append((time.perf_counter() - start) * 1e3 / batch)
        return values
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        for _ in range(batch):
            fn()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) / batch for a, b in zip(marks, marks[1:])]


def median_ms(fn, device, warmup=3, repeats=11, batch=1):
    return statistics.median(times_ms(fn, device, warmup, repeats, batch))


def slowest(value, device):
    """The largest of the ranks' values."""
    if not dist.is_initialized():
        return value
    t = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(t, dist.ReduceOp.MAX)
    return t.item()


def gib(device):
    """Peak memory handed out on this GPU, GiB; 0 on a CPU."""
    return torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0


def describe(device):
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    versions = f"torch {torch.__version__}"
    if device.type == "cuda":
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        versions += (
            f", CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, NCCL {nccl}"
        )
    return f"{name}; {versions}"


def choose_sdpa(name):
    """Leave scaled_dot_product_attention one kernel family; 'default' leaves it the choice."""
    if name == "default":
        return
    for family in ("flash", "mem_efficient", "cudnn", "math"):
        getattr(torch.backends.cuda, f"enable_{family}_sdp")(family == name)


def _rank_main(rank, world, rendezvous, cpu, main, args):
    if not cpu:
        torch.cuda.set_device(rank)
    device = torch.device("cpu") if cpu else torch.device("cuda", rank)
    dist.init_process_group(
        "gloo" if cpu else "nccl",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=world,
        device_id=None if cpu else device,
    )
    main(rank, world, device, args)
    dist.barrier()
    dist.destroy_process_group()


def run_ranks(world, cpu, main, args):
    """Run main(rank, world, device, args) in `world` processes: NCCL on GPUs, gloo on the CPU."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(
            _rank_main, (world, os.path.join(folder, "ranks"), cpu, main, args), nprocs=world
        )
