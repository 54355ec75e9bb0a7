#!/usr/bin/env python3
"""What collet-train does, in PyTorch: DistributedDataParallel over Gloo, one thread a rank. For scripts/bench-training.

    collet-run -n 2 python3 torch_ddp.py --model lenet --dataset cifar10 --data DIR --steps 60    how fast
    collet-run -n 2 python3 torch_ddp.py --model lenet --dataset cifar10 --data DIR --epochs 10   how well it learns

Also under torchrun or mpirun with torch's variables; without them, one rank. Rank 0 prints an object a line: for --steps
one a variant (eager, channels-last, scripted), for --epochs one an epoch, of the first variant named.

PyTorch gets what helps it: batches that lie ready in memory and in the layout that the variant wants (no loader is
timed), gradients that live in the buckets, a static graph, no broadcast of statistics, the fused optimiser, gradients
dropped instead of zeroed. A step's time is the median of a round's, of the slowest rank; its computing is what the same
step takes without averaging (no_sync), the rest is communication that did not hide.
"""

import argparse
import contextlib
import gzip
import json
import os
import pathlib
import statistics
import sys
import time

import numpy
import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

EVALUATION_BATCH = 200

# ---- Data: as train/data/dataset.c has it ----------------------------------------------------------------------------


def read(data, folder, name):
    for path in (data / name, data / folder / name):
        for ending in ("", ".gz"):
            file = pathlib.Path(str(path) + ending)
            if file.exists():
                with gzip.open(file) if ending else open(file, "rb") as stream:
                    return stream.read()
    sys.exit(f"torch_ddp: {data}: neither here nor in {folder}/ is {name} (or {name}.gz)")


def mnist(data, part):
    prefix = "train" if part == "train" else "t10k"
    images = numpy.frombuffer(read(data, "mnist", prefix + "-images-idx3-ubyte"), numpy.uint8, offset=16)
    labels = numpy.frombuffer(read(data, "mnist", prefix + "-labels-idx1-ubyte"), numpy.uint8, offset=8)
    return images.reshape(-1, 1, 28, 28), labels, [0.1307], [0.3081]


def cifar10(data, part):
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if part == "train" else ["test_batch.bin"]
    rows = numpy.frombuffer(b"".join(read(data, "cifar-10", name) for name in names), numpy.uint8).reshape(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0], [0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]


def load(arguments, part):
    pixels, labels, mean, deviation = {"mnist": mnist, "cifar10": cifar10}[arguments.dataset](arguments.data, part)
    images = torch.from_numpy(pixels.copy()).float().div_(255)
    images.sub_(torch.tensor(mean).view(1, -1, 1, 1)).div_(torch.tensor(deviation).view(1, -1, 1, 1))
    return images, torch.from_numpy(labels.astype(numpy.int64))


# ---- Models: the tables of train/model/models.c --------------------------------------------------------------------------


def convnet():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10))


def lenet():
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def normed(inputs, outputs, kernel, stride):
    return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]


class Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        halves = inputs != outputs
        self.body = nn.Sequential(
            *normed(inputs, outputs, 3, 2 if halves else 1), nn.ReLU(), *normed(outputs, outputs, 3, 1))
        self.shortcut = nn.Sequential(*normed(inputs, outputs, 1, 2)) if halves else nn.Identity()
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.body(x) + self.shortcut(x))


def resnet20():
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    return nn.Sequential(
        *normed(3, 16, 3, 1), nn.ReLU(), *(Residual(*pair) for pair in zip(widths, widths[1:])),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


MODELS = {"convnet": convnet, "lenet": lenet, "resnet20": resnet20}
VARIANTS = ["eager", "channels-last", "scripted"]

# ---- Training ---------------------------------------------------------------------------------------------------


class Trainer:
    def __init__(self, arguments, variant, size):
        torch.manual_seed(arguments.seed)
        model = MODELS[arguments.model]()
        self.layout = torch.channels_last if variant == "channels-last" else torch.contiguous_format
        model = model.to(memory_format=self.layout)
        if variant == "scripted":
            model = torch.jit.script(model)
        self.model = model
        self.parallel = model
        if size > 1:
            self.parallel = DistributedDataParallel(
                model, broadcast_buffers=False, gradient_as_bucket_view=True, static_graph=variant != "scripted")
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=arguments.momentum, foreach=True)

    def batch(self, images, labels):
        return images.to(memory_format=self.layout).contiguous(memory_format=self.layout), labels

    def step(self, images, labels):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.parallel(images), labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def alone(self):
        """Steps within it are computed only."""
        return self.parallel.no_sync() if hasattr(self.parallel, "no_sync") else contextlib.nullcontext()

    def accuracy(self, images, labels):
        self.model.eval()
        right = 0
        with torch.no_grad():
            for first in range(0, len(labels), EVALUATION_BATCH):
                batch, answers = self.batch(images[first:first + EVALUATION_BATCH], labels[first:first + EVALUATION_BATCH])
                right += int((self.model(batch).argmax(1) == answers).sum())
        self.model.train()
        return right / len(labels)


def everywhere(value, size, operation):
    if size == 1:
        return value
    tensor = torch.tensor([value], dtype=torch.float64)
    torch.distributed.all_reduce(tensor, operation)
    return float(tensor)


def indices_of(arguments, count, rank, size, epoch):
    sampler = DistributedSampler(range(count), size, rank, shuffle=True, seed=arguments.seed)
    sampler.set_epoch(epoch)
    return torch.tensor(list(sampler))


def measure(arguments, variant, rank, size):
    """Rounds of steps with and without averaging, taking turns; the median round."""
    images, labels = load(arguments, "train")
    trainer = Trainer(arguments, variant, size)
    order = indices_of(arguments, len(labels), rank, size, 0)
    batches = [trainer.batch(images[part], labels[part])
               for part in order.split(arguments.batch_size)[:min(arguments.steps, arguments.batches)]]

    def seconds(count):
        if size > 1:
            torch.distributed.barrier()
        clock = [time.perf_counter()]
        for i in range(count):
            trainer.step(*batches[i % len(batches)])
            clock.append(time.perf_counter())
        step = statistics.median(after - before for before, after in zip(clock, clock[1:]))
        return everywhere(step, size, torch.distributed.ReduceOp.MAX)

    seconds(arguments.warmup)
    with trainer.alone():
        seconds(arguments.warmup)
    whole, computing = [], []
    for _ in range(arguments.rounds):
        whole.append(seconds(arguments.steps))
        if size > 1:
            with trainer.alone():
                computing.append(seconds(arguments.steps))
    step = statistics.median(whole)
    return {"variant": variant, "ranks": size, "images_per_s": round(size * arguments.batch_size / step, 1),
            "step_ms": round(1e3 * step, 4),
            "compute_ms": round(1e3 * min(step, statistics.median(computing)) if computing else 1e3 * step, 4)}


def learn(arguments, variant, rank, size):
    images, labels = load(arguments, "train")
    test_images, test_labels = load(arguments, "test")
    trainer = Trainer(arguments, variant, size)
    for epoch in range(arguments.epochs):
        spent = total = 0.0
        order = indices_of(arguments, len(labels), rank, size, epoch)
        for part in order.split(arguments.batch_size):
            batch = trainer.batch(images[part], labels[part])
            start = time.perf_counter()
            loss = trainer.step(*batch)
            spent += time.perf_counter() - start
            total += float(loss) * len(part)
        total = everywhere(total, size, torch.distributed.ReduceOp.SUM) if size > 1 else total
        if rank == 0:
            yield {"epoch": epoch + 1, "loss": total / (size * len(order)),
                   "test_accuracy": trainer.accuracy(test_images, test_labels),
                   "images_per_s": round(size * len(order) / spent, 1)}
        if size > 1:
            torch.distributed.barrier()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="convnet")
    parser.add_argument("--dataset", choices=["mnist", "cifar10"], default="mnist")
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("COLLET_DATA"))
    parser.add_argument("--batch-size", type=int, default=100, help="images a step and rank")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variants", type=lambda text: text.split(","), default=VARIANTS)
    parser.add_argument("--steps", type=int, default=60, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=10, help="steps before the first round")
    parser.add_argument("--batches", type=int, default=100, help="that lie ready in memory, used in turn")
    parser.add_argument("--epochs", type=int, default=0, help="train and evaluate instead of measuring")
    arguments = parser.parse_args()
    for variant in arguments.variants:
        if variant not in VARIANTS:
            parser.error(f"no variant {variant}: {', '.join(VARIANTS)}")
    if not arguments.data:
        parser.error("say where the files are, with --data or COLLET_DATA")
    return arguments


def main():
    arguments = parse()
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(1)
    if size > 1:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=size)
    if arguments.epochs:
        results = learn(arguments, arguments.variants[0], rank, size)
    else:
        results = (measure(arguments, variant, rank, size) for variant in arguments.variants)
    for result in results:
        if rank == 0:
            print(json.dumps(result), flush=True)
    if size > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
