"""A dense task on top: the feature maps of every family feed a small segmentation head, which learns."""

from __future__ import annotations

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from export.conftest import FAMILIES, SIZE

CLASSES = 3


class SegmentationHead(nn.Module):
    """Every map to one width, one size, and their sum to classes a pixel."""

    def __init__(self, channels: list[int], width: int = 16) -> None:
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(each, width, 1) for each in channels)
        self.classify = nn.Conv2d(width, CLASSES, 3, padding=1)

    def forward(self, maps: list[Tensor], size: tuple[int, int]) -> Tensor:
        finest = max((each.shape[-2:] for each in maps), key=lambda shape: shape[0])
        laterals = (lateral(each) for lateral, each in zip(self.lateral, maps, strict=True))
        summed = sum(F.interpolate(each, finest, mode="bilinear") for each in laterals)
        return F.interpolate(self.classify(F.relu(summed)), size, mode="bilinear")


def squares(count: int) -> tuple[Tensor, Tensor]:
    """Images of noise with a bright and a dark square, and which pixels are which."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 3, SIZE, SIZE, generator=generator) * 0.1
    target = torch.zeros(count, SIZE, SIZE, dtype=torch.long)
    corners = torch.randint(0, SIZE - 12, (count, 2, 2), generator=generator)
    for index, pair in enumerate(corners.tolist()):
        for label, (top, left) in zip((1, 2), pair, strict=True):
            x[index, :, top : top + 12, left : left + 12] = 1.5 if label == 1 else -1.5
            target[index, top : top + 12, left : left + 12] = label
    return x, target


@pytest.mark.parametrize("family", FAMILIES)
def test_features_feed_a_segmentation_head(family: str) -> None:
    torch.manual_seed(0)
    backbone = timm.create_model("vitruvius", arch=FAMILIES[family], img_size=SIZE, features_only=True)
    strides = backbone.feature_info.reduction()
    head = SegmentationHead(backbone.feature_info.channels())
    x, target = squares(8)
    maps = backbone(x)
    assert len(maps) == len(strides) >= 2
    optimizer = torch.optim.AdamW([*backbone.parameters(), *head.parameters()], lr=3e-3)
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.cross_entropy(head(backbone(x), (SIZE, SIZE)), target)
        loss.backward()
        optimizer.step()
    made = head(backbone.eval()(x), (SIZE, SIZE))
    assert made.shape == (8, CLASSES, SIZE, SIZE)
    background = (target == 0).float().mean()
    right = (made.argmax(1) == target).float().mean()
    assert right > background + 0.5 * (1 - background)
    unused = [name for name, parameter in backbone.named_parameters() if parameter.grad is None]
    assert not unused
