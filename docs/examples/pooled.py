"""An image encoder of one's own: `phylatent train model.encoder=docs/examples/pooled.py pooled.hidden=64`."""

from dataclasses import dataclass

from torch import Tensor, nn

from phylatent.schema import ModelConfig

CELLS = 8


@dataclass(frozen=True)
class PooledSettings:
    hidden: int = 32


class Pooled(nn.Module):
    """The mean colour of 8×8 cells, and two linear layers."""

    name = "pooled"
    Settings = PooledSettings

    def __init__(self, settings: PooledSettings, size: ModelConfig) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(CELLS)
        self.net = nn.Sequential(nn.Linear(3 * CELLS**2, settings.hidden), nn.SiLU(), nn.Linear(settings.hidden, size.width))

    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised frames [N, 3, S, S] → features [N, size.width]."""
        return self.net(self.pool(pixels).flatten(1))


ENCODER = Pooled
