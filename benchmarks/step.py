"""Seconds and memory of a training step, ours against the reference's modules, and how near it comes to the machine's peak.

    python benchmarks/step.py [repetitions]       # minutes; writes benchmarks/results/step.json

The reference is stable-worldmodel's LeWM with a transformers ViT and its own SIGReg; the paper's other losses, which it lacks,
are written plainly with a pass of the model each. Weights, frames, dropout rate, optimiser, clipping and threads are the
same on both sides. Where the model is a ViT, at the paper's size with batch 2 and at the laptop's sizes, both sides compute the
same thing; `laptop` as it is shipped has another encoder, and is compared with itself at other settings only.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from harness import Row, compared, in_turns, seconds, write
from peer_lewm import Size, their_lewm
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from phylatent.composition import compose
from phylatent.machine import cores, keep_freed_memory, peak_memory_gb
from phylatent.models.heads import ActionQuery, Denoiser, ProjectionHead, StateHead
from phylatent.models.lewm.weights import to_lewm
from phylatent.models.world_model import WorldModel
from phylatent.objectives.casc import casc, distance
from phylatent.objectives.distance import normalized_mse
from phylatent.objectives.svic import shift_appearance
from phylatent.randomness import Draws
from phylatent.schema import Config
from phylatent.training.graph import TrainingGraph, build
from phylatent.training.module import make_optimizer

CPU = torch.device("cpu")
ALONE = "--alone"
SIZES = {
    "paper size, batch 2": ("paper", ["train.batch_size=2"]),
    "laptop size, ViT": ("laptop", ["model.encoder=vit"]),
}
"""What both sides can build: name → preset and what differs from it."""
VARIANTS = ("lewm", "phylatent")
ASKED, ASKED_OF_PHYLATENT, ASKED_OF_PEAK = 1.25, 1.5, 0.65
Batch = tuple[Tensor, Tensor, Tensor]


def batch_of(config: Config, graph: TrainingGraph) -> Batch:
    """Frames, raw actions and targets at random: time does not depend on them."""
    generator = torch.Generator().manual_seed(0)
    size, clip, side = config.train.batch_size, config.clip, config.model.image_size
    frames = torch.randint(0, 256, (size, clip.frames, side, side, 3), generator=generator, dtype=torch.uint8)
    actions = torch.randn(size, clip.context, graph.world_model.config.block_dim, generator=generator)
    return frames, actions, torch.randn(size, clip.frames, config.spec.target.dim, generator=generator)


@dataclass
class Step:
    """A loss, and the optimiser that follows it; called, it makes one step."""

    loss: Callable[[int], Tensor]
    parameters: list[nn.Parameter]
    optimiser: torch.optim.Optimizer
    clip_norm: float
    done: int = 0

    def __call__(self) -> None:
        self.optimiser.zero_grad()
        self.loss(self.done).backward()
        nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
        self.optimiser.step()
        self.done += 1


def our_step(config: Config) -> Step:
    graph = build(config).train()
    batch = batch_of(config, graph)
    parameters = list(graph.parameters())
    optimiser = make_optimizer(parameters, config.train, fused=True)
    return Step(lambda step: graph(*batch, Draws(0, step, CPU)).total, parameters, optimiser, config.train.clip_norm)


def their_step(config: Config) -> Step:
    graph = build(config)
    batch = batch_of(config, graph)
    plain = Plain(reference(graph.world_model), graph, config).train()
    parameters = list(plain.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=config.train.lr, weight_decay=config.train.weight_decay)
    return Step(lambda step: plain(*batch), parameters, optimiser, config.train.clip_norm)


def reference(ours: WorldModel) -> nn.Module:
    """stable-worldmodel's LeWM with our sizes and weights."""
    size = ours.config.model
    heads = {"heads": size.predictor_heads, "dim_head": size.predictor_head_dim}
    predictor = {"depth": size.predictor_depth, "mlp_dim": size.predictor_mlp, **heads}
    sizes = Size(size.image_size, size.patch_size, size.depth, size.projector_hidden, predictor)
    model = their_lewm(sizes, ours.config.action_dim).requires_grad_(True)
    model.load_state_dict(to_lewm(ours))
    return model


class Plain(nn.Module):
    """The paper's training step as one writes it down: every objective by its own passes through the reference model."""

    def __init__(self, model: nn.Module, graph: TrainingGraph, config: Config) -> None:
        super().__init__()
        from stable_worldmodel.wm.loss import SIGReg

        width = config.model.width
        self.model, self.settings = model, config.objective_settings
        self.sigreg = SIGReg(knots=17, num_proj=1024)
        heads = {"psg": StateHead(width, config.spec.target.dim)} if "psg" in self.settings else {}
        if "fra" in self.settings:
            heads |= {"projection": ProjectionHead(width), "query": ActionQuery(width)}
        if "ld" in self.settings:
            heads["ld"] = Denoiser(width)
        self.heads = nn.ModuleDict(heads)
        self.mean, self.std = graph.world_model.pixel_mean, graph.world_model.pixel_std
        self.context = config.clip.context

    def forward(self, frames: Tensor, actions: Tensor, targets: Tensor) -> Tensor:
        pixels = ((frames.float() - self.mean) / self.std).permute(0, 1, 4, 2, 3).contiguous()
        info = self.model.encode({"pixels": pixels, "action": actions})
        z, c = info["emb"], info["act_emb"]
        predicted = self.model.predict(z[:, : self.context], c)
        loss = (predicted - z[:, 1:]).square().mean() + self.settings["sigreg"].weight * self.sigreg(z.transpose(0, 1))
        for name in self.settings:
            if name not in ("pred", "sigreg"):
                loss = loss + self.settings[name].weight * getattr(self, name)(pixels, actions, targets, z, c, predicted)
        return loss

    def svic(self, pixels: Tensor, actions: Tensor, targets: Tensor, z: Tensor, c: Tensor, predicted: Tensor) -> Tensor:
        settings = self.settings["svic"]
        uniform = torch.rand(*pixels.shape[:2], 4)
        changed = shift_appearance(pixels, uniform, brightness=settings.brightness, channel=settings.channel)
        return normalized_mse(self.model.encode({"pixels": changed})["emb"], z.detach())

    def psg(self, pixels: Tensor, actions: Tensor, targets: Tensor, z: Tensor, c: Tensor, predicted: Tensor) -> Tensor:
        head = self.heads["psg"]
        return (head(z) - targets).square().mean() + (head(predicted) - targets[:, 1:]).square().mean()

    def fra(self, pixels: Tensor, actions: Tensor, targets: Tensor, z: Tensor, c: Tensor, predicted: Tensor) -> Tensor:
        loss = torch.zeros(())
        for view in (self.heads["projection"], lambda x: self.heads["query"](x, c)):
            with torch.no_grad():
                target = view(z[:, 1:])
            loss = loss + normalized_mse(view(predicted), target)
        return loss

    def casc(self, pixels: Tensor, actions: Tensor, targets: Tensor, z: Tensor, c: Tensor, predicted: Tensor) -> Tensor:
        settings = self.settings["casc"]
        others = actions[torch.randperm(len(actions))] + settings.action_noise * torch.randn_like(actions)
        away = distance(others, actions)
        imagined = self.model.predict(z[:, : self.context], self.model.action_encoder(others))
        margins = {"margin_scale": settings.margin_scale, "max_margin": settings.max_margin}
        return casc(imagined, predicted, away, away.median(), **margins)

    def ld(self, pixels: Tensor, actions: Tensor, targets: Tensor, z: Tensor, c: Tensor, predicted: Tensor) -> Tensor:
        settings, noise = self.settings["ld"], torch.randn_like(predicted)
        sigma = settings.sigma_min + (settings.sigma_max - settings.sigma_min) * torch.rand(*noise.shape[:2], 1)
        noisy = z[:, 1:].detach() + sigma * noise
        return (self.heads["ld"](noisy, predicted, c, sigma) - noise).square().mean()


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def warm(*steps: Step) -> None:
    for step in steps:
        step()
        step()


def timed(first: Step, second: Step, repetitions: int) -> list[tuple[float, float]]:
    warm(first, second)
    return in_turns(lambda: seconds(first), lambda: seconds(second), repetitions)


def against_the_reference(repetitions: int) -> Iterator[Row]:
    for size, (preset, changed) in SIZES.items():
        for variant in VARIANTS:
            all_frames = ["svic.frames=null"] if variant == "phylatent" else []
            config = compose(task="pusht", preset=preset, variant=variant, overrides=changed + all_frames)
            ours, theirs = our_step(config), their_step(config)
            pairs = timed(ours, theirs, repetitions)
            memory = {side: alone(side, preset, variant, changed + all_frames)["memory_gb"] for side in ("ours", "theirs")}
            yield compared(f"{size}, {variant}", pairs, unit="s", peer_name="stable-worldmodel", asked=ASKED, memory_gb=memory)


def against_our_lewm(repetitions: int) -> Iterator[Row]:
    """What the other objectives cost on top, as the presets are."""
    for preset, changed in (("laptop", []), ("paper", ["train.batch_size=2"])):
        first, second = (
            our_step(compose(task="pusht", preset=preset, variant=variant, overrides=changed)) for variant in VARIANTS
        )
        pairs = timed(first, second, repetitions)
        costs = [phylatent / lewm for lewm, phylatent in pairs]
        yield Row(
            what=f"{preset}: a phylatent step in lewm steps",
            unit="lewm steps",
            ours=statistics.median(costs),
            asked=ASKED_OF_PHYLATENT,
            at_most=True,
            repetitions=repetitions,
            more={"lewm_seconds": statistics.median(p[0] for p in pairs), "spread": (min(costs), max(costs))},
        )


def of_the_peak(repetitions: int) -> Iterator[Row]:
    """GFLOP/s of the paper-size step, as a share of what a large matrix product reaches right before and after it."""
    for variant in VARIANTS:
        preset, changed = SIZES["paper size, batch 2"]
        step = our_step(compose(task="pusht", preset=preset, variant=variant, overrides=changed))
        warm(step)
        with FlopCounterMode(display=False) as counter:
            step()
        shares, rates = [], []
        for _ in range(repetitions):
            before, rate, after = gemm_rate(), counter.get_total_flops() / seconds(step) / 1e9, gemm_rate()
            rates.append(rate)
            shares.append(2 * rate / (before + after))
        yield Row(
            what=f"paper size, batch 2, {variant}: share of the GEMM peak",
            unit="of the peak",
            ours=statistics.median(shares),
            asked=ASKED_OF_PEAK,
            repetitions=repetitions,
            more={"gflops": statistics.median(rates), "spread": (min(shares), max(shares))},
        )


def gemm_rate(size: int = 1024, repetitions: int = 8) -> float:
    """GFLOP/s of the best of a few products of square matrices."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / min(seconds(lambda: a @ b) for _ in range(repetitions)) / 1e9


def alone(side: str, preset: str, variant: str, changed: list[str]) -> dict[str, float]:
    """`seconds` of a step and `memory_gb` at its peak, of a process of its own that makes a few steps with one thread."""
    command = [sys.executable, __file__, ALONE, side, preset, variant, *changed]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def tell_alone(side: str, preset: str, variant: str, *changed: str) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    step = (our_step if side == "ours" else their_step)(
        compose(task="pusht", preset=preset, variant=variant, overrides=changed)
    )
    warm(step)
    taken = statistics.median(seconds(step) for _ in range(3))
    print(json.dumps({"seconds": taken, "memory_gb": peak_memory_gb()}))


def main(repetitions: int) -> None:
    keep_freed_memory()
    with threads(cores()):
        parts = against_the_reference(repetitions), against_our_lewm(repetitions), of_the_peak(repetitions)
        write("step", itertools.chain(*parts))


if __name__ == "__main__":
    if sys.argv[1:2] == [ALONE]:
        tell_alone(*sys.argv[2:])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
