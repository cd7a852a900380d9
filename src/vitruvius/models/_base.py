"""The face of every model: timm's conventions, so that timm's tools work on them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import torch
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from vitruvius.arch import Arch, ImageSize, image_shape, refuse, token_grids
from vitruvius.models.layers import Axes, Drops, Grid, StageBlocks, init_weights, pair, to_map


def has_no_weight_decay(name: str) -> bool:
    """Of a parameter's name: whether it is a class token, a position embedding or a table."""
    return any(kind in name for kind in ("cls_token", "pos_embed", "position.", "table"))


class Backbone(nn.Module, ABC):
    """An architecture as a plain network: tokens, stages, a last norm, a classifier.

    A family says how pixels become tokens (`embed`), what its stages are made of, and at what points
    `forward_intermediates` taps it.
    """

    taps: ClassVar[Literal["block", "stage"]] = "stage"
    axes: ClassVar[Axes] = {
        **pair("patch_embed", "first", None, None, None),
        **pair("patch_norm", "first"),
        "cls_token": (None, None, "first"),
        "pos_embed": (None, None, "first"),
        **pair("norm", "last"),
        **pair("head", None, "last"),
        **pair("token_head", None, "last"),
    }
    follows: ClassVar[dict[str, str]] = {
        "patch_embed.weight": "patch",
        "patch_embed.bias": "patch",
        "pos_embed": "patch",
        "cls_token": "patch if private",
    }

    def __init__(
        self, arch: Arch, stages: list[StageBlocks], num_classes: int, img_size: ImageSize, in_chans: int, drops: Drops
    ) -> None:
        super().__init__()
        self.arch = arch
        self.num_classes = num_classes
        self.in_chans = in_chans
        self.img_size = image_shape(img_size)
        self.global_pool = arch.pool
        self.num_prefix_tokens = int(arch.class_token)
        self.num_features = self.head_hidden_size = self.embed_dim = arch.stages[-1].dim
        self.grids = token_grids(arch, img_size)
        self.pos_drop = nn.Dropout(drops.pos_drop_rate)
        self.stages = nn.ModuleList(stages)
        self.norm = nn.LayerNorm(self.num_features, eps=arch.norm_eps)
        self.head_drop = nn.Dropout(drops.drop_rate)
        self.head = self._classifier(num_classes)
        self.token_head: nn.Module | None = None
        """A classifier of patch tokens, for token labeling (ViT-ResNAS 2.4): see `add_token_head`."""
        self.feature_info = self._feature_info()
        self.pretrained_cfg: dict[str, Any] = {}
        self.apply(init_weights)

    @abstractmethod
    def embed(self, x_BCHW: Tensor) -> Tensor:
        """Pixels to the first stage's tokens."""

    def _classifier(self, num_classes: int) -> nn.Module:
        return nn.Linear(self.num_features, num_classes) if num_classes > 0 else nn.Identity()

    def _feature_info(self) -> list[dict[str, Any]]:
        stride = self.arch.patch.stride
        info = []
        for s, stage in enumerate(self.arch.stages):
            here = {"num_chs": stage.dim, "reduction": stride * 2**s}
            if self.taps == "block":
                info += [{**here, "module": f"stages.{s}.blocks.{b}"} for b in range(len(stage.blocks))]
            else:
                info.append({**here, "module": f"stages.{s}"})
        return info

    # -- forward ---------------------------------------------------------------------------------------------------

    def _start(self, x_BCHW: Tensor) -> tuple[Tensor, Grid]:
        if x_BCHW.ndim != 4 or x_BCHW.shape[1] != self.in_chans or tuple(x_BCHW.shape[2:]) != self.img_size:
            expected = (self.in_chans, *self.img_size)
            refuse("images differ from what the model was built for", tuple(x_BCHW.shape), f"(batch, {expected})")
        return self.pos_drop(self.embed(x_BCHW)), self.grids[0]

    def forward_features(self, x_BCHW: Tensor) -> Tensor:
        """The last stage's tokens after the last norm, class token first where there is one."""
        x_BNC, grid = self._start(x_BCHW)
        for stage in self.stages:
            x_BNC, grid = stage(x_BNC, grid)
        return self.norm(x_BNC)

    def pool(self, x_BNC: Tensor) -> Tensor:
        match self.global_pool:
            case "token":
                return x_BNC[:, 0]
            case "mean":
                return x_BNC[:, self.num_prefix_tokens :].mean(dim=1)
        return x_BNC

    def forward_head(self, x_BNC: Tensor, pre_logits: bool = False) -> Tensor:
        x = self.head_drop(self.pool(x_BNC))
        return x if pre_logits else self.head(x)

    def forward(self, x_BCHW: Tensor, patch_logits: bool = False) -> Any:
        """The logits; with `patch_logits` also those of each patch token (B, N, classes), by the token head."""
        x_BNC = self.forward_features(x_BCHW)
        if not patch_logits:
            return self.forward_head(x_BNC)
        if self.token_head is None:
            refuse("logits of patch tokens need a token head", "none", "build(..., token_head=True)")
        return self.forward_head(x_BNC), self.token_head(self.head_drop(x_BNC[:, self.num_prefix_tokens :]))

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """Feature maps of chosen taps (blocks of a ViT, stages of the others), and the last features on top.

        With `norm`, the last norm is applied to those taps that have its width.
        """
        if output_fmt not in ("NCHW", "NLC"):
            refuse("unknown output_fmt", output_fmt, "NCHW, NLC")
        wanted, last = feature_take_indices(len(self.feature_info), indices)
        found: list[Any] = []
        tap = 0

        def take(x_BNC: Tensor, grid: Grid) -> None:
            nonlocal tap
            if tap in wanted:
                x_BNC = self.norm(x_BNC) if norm and x_BNC.shape[-1] == self.num_features else x_BNC
                prefix, patches = x_BNC[:, : self.num_prefix_tokens], x_BNC[:, self.num_prefix_tokens :]
                out = to_map(patches, grid).contiguous() if output_fmt == "NCHW" else patches
                found.append((out, prefix) if return_prefix_tokens and self.num_prefix_tokens else out)
            tap += 1

        x_BNC, grid = self._start(x)
        for stage in self.stages:
            x_BNC, grid = stage.enter(x_BNC, grid)
            for index in range(len(stage.blocks)):
                x_BNC = stage.run(index, x_BNC, grid)
                if self.taps == "block":
                    take(x_BNC, grid)
                    if stop_early and tap > last:
                        break
            if self.taps == "stage":
                take(x_BNC, grid)
            if stop_early and tap > last:
                break
        if intermediates_only:
            return found
        return self.norm(x_BNC) if x_BNC.shape[-1] == self.num_features else x_BNC, found

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drops the blocks or stages behind the last wanted tap, and on demand the norm and the classifier."""
        wanted, last = feature_take_indices(len(self.feature_info), indices)
        if self.taps == "block":
            self.stages[0].blocks = self.stages[0].blocks[: last + 1]
        else:
            self.stages = self.stages[: last + 1]
        if prune_norm or last + 1 < len(self.feature_info):
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return wanted

    # -- what timm's tools ask for ---------------------------------------------------------------------------------

    @torch.jit.ignore
    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new classifier; `global_pool` may be "token" (with a class token), "mean" or "" (no pooling)."""
        if global_pool is not None:
            pools = ("", "mean", "avg", *(("token",) if self.arch.class_token else ()))
            if global_pool not in pools:
                refuse("unknown global_pool", global_pool, ", ".join(map(repr, pools)))
            self.global_pool = "mean" if global_pool == "avg" else global_pool
        self.num_classes = num_classes
        reference = next(self.parameters())
        self.head = self._classifier(num_classes).to(device=reference.device, dtype=reference.dtype)
        self.head.apply(init_weights)
        self.head.train(self.training)

    def add_token_head(self) -> None:
        self.token_head = self._classifier(self.num_classes)
        self.token_head.apply(init_weights)

    def drop_token_head(self) -> None:
        """What is left is the network that is deployed."""
        self.token_head = None

    @torch.jit.ignore
    def no_weight_decay(self) -> set[str]:
        """Class token, position embeddings and tables (timm leaves out biases and norms by their shape)."""
        return {name for name, _ in self.named_parameters() if has_no_weight_decay(name)}

    @torch.jit.ignore
    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        block = (r"^stages\.(\d+)" if coarse else r"^stages\.(\d+)\.blocks\.(\d+)", None)
        before = (r"^stages\.(\d+)\.(?:downsample|position)", (0,))
        return {
            "stem": r"^(?:patch_embed|patch_norm|cls_token|pos_embed)",
            "blocks": [block, before, (r"^norm", (99999,))],
        }

    @torch.jit.ignore
    def set_grad_checkpointing(self, enable: bool = True) -> None:
        for stage in self.stages:
            stage.grad_checkpointing = enable
