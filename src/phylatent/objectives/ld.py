"""LD, latent denoising: the predicted future must help to clean a noisy observed one."""

# B batch, H context, D latent

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from phylatent.models.heads import Denoiser
from phylatent.models.world_model import WorldModel
from phylatent.objectives.objective import Dims, Objective, ObjectiveSettings, Sequences
from phylatent.randomness import Draws


def add_noise(future_BHD: Tensor, normal_BHD: Tensor, sigma_BH1: Tensor) -> Tensor:
    """z̃⁺ of eq:latent_noise: the observed future is detached."""
    return future_BHD.detach().float() + sigma_BH1 * normal_BHD


def ld(noise_read: Tensor, noise: Tensor) -> Tensor:
    """L_denoise of eq:latent_denoising."""
    return (noise_read.float() - noise.float()).square().mean()


@dataclass(frozen=True)
class LdSettings(ObjectiveSettings):
    share: float = 0.1
    sigma_min: float = 0.0
    """The least noise on an observed future (eq:latent_noise)."""
    sigma_max: float = 0.0
    """The most."""


class Ld(Objective):
    name = "ld"
    Settings = LdSettings
    of_prediction = True

    def __init__(self, settings: LdSettings, dims: Dims) -> None:
        super().__init__(settings, dims)
        self.head = Denoiser(dims.latent)

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        low, high = self.settings.sigma_min, self.settings.sigma_max
        noise = draws.named("noise").normal_rows(*seq.z_future_BHD.shape)
        sigma = low + (high - low) * draws.named("sigma").uniform_rows(*seq.z_future_BHD.shape[:2], 1)
        noisy = add_noise(seq.z_future_BHD, noise, sigma)
        return ld(self.head(noisy, seq.z_predicted_BHD, seq.c_BHD, sigma), noise)
