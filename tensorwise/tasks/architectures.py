"""Networks by name: real architectures with random weights, made from configs of ``transformers``; nothing is downloaded.

Run times do not depend on the weights. Networks that ``transformers`` lacks are built here, layer by layer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, final

from tensorwise.errors import InputError, MissingExtraError

IMAGE: Final = 224
"""Pixels of an image's side."""
TOKENS: Final = 128
"""Tokens of a text."""


@final
@dataclass(frozen=True)
class Architecture:
    """A network that can be built.

    Attributes:
        family: networks of one family share most tasks: none of it is trained on when another is held out.
        kind: of its inputs.
        model: a class of ``transformers``, ``XModel`` with ``XConfig``; or a function here, by name.
        config: arguments of the config, or of the function.
    """

    family: str
    kind: Literal["image", "text"]
    model: str
    config: Mapping[str, Any]

    def build(self, batch: int) -> tuple[Any, tuple[Any, ...]]:
        """Return the ``torch.nn.Module`` and its inputs.

        Raises:
            InputError: the batch is not positive.
        """
        try:
            import torch
        except ImportError as error:
            raise MissingExtraError("torch", "tvm", "building networks") from error
        if batch < 1:
            raise InputError(f"batch must be positive, got {batch}")
        torch.manual_seed(0)
        if self.model in _BUILT:
            module = _BUILT[self.model](**self.config)
        else:
            module = _of_transformers(self.model, dict(self.config))
        if self.kind == "image":
            return module, (torch.randn(batch, 3, IMAGE, IMAGE),)
        return module, (torch.randint(0, 1000, (batch, TOKENS)),)


def _of_transformers(model: str, config: dict[str, Any]) -> Any:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingExtraError("transformers", "tvm", "building networks") from error

    class First(torch.nn.Module):
        """The first of a model's results: that of its last layer."""

        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, given: Any) -> Any:
            return self.inner(given, return_dict=False)[0]

    prefix, kind = model.split("/")
    settings = getattr(transformers, f"{prefix}Config")(**config)
    settings._attn_implementation = "eager"
    return First(getattr(transformers, f"{prefix}{kind}")(settings))


def _vgg(layers: tuple[int, ...]) -> Any:
    """Simonyan and Zisserman, 2014: so many convolutions of each width, then three dense layers."""
    from torch import nn

    parts: list[Any] = []
    before = 3
    for count, width in zip(layers, (64, 128, 256, 512, 512), strict=True):
        for _ in range(count):
            parts += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU()]
            before = width
        parts.append(nn.MaxPool2d(2))
    dense = [nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)]
    return nn.Sequential(*parts, nn.Flatten(), *dense)


def _squeezenet() -> Any:
    """Iandola et al., 2016: version 1.1."""
    import torch
    from torch import nn

    class Fire(nn.Module):
        def __init__(self, before: int, squeezed: int, width: int) -> None:
            super().__init__()
            self.squeeze = nn.Conv2d(before, squeezed, 1)
            self.narrow = nn.Conv2d(squeezed, width, 1)
            self.wide = nn.Conv2d(squeezed, width, 3, padding=1)

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.squeeze(x))
            return torch.relu(torch.cat([self.narrow(x), self.wide(x)], 1))

    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2), Fire(64, 16, 64), Fire(128, 16, 64),
        nn.MaxPool2d(3, 2), Fire(128, 32, 128), Fire(256, 32, 128), nn.MaxPool2d(3, 2), Fire(256, 48, 192),
        Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256), nn.Conv2d(512, 1000, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


def _densenet(blocks: tuple[int, ...], growth: int) -> Any:
    """Huang et al., 2017: each layer reads what all layers of its block made before it."""
    import torch
    from torch import nn

    class DenselyConnected(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.steps = nn.Sequential(
                nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, 4 * growth, 1, bias=False),
                nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
            )  # fmt: skip

        def forward(self, x: Any) -> Any:
            return torch.cat([x, self.steps(x)], 1)

    width = 2 * growth
    parts: list[Any] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    parts.append(nn.MaxPool2d(3, 2, 1))
    for place, count in enumerate(blocks):
        for _ in range(count):
            parts.append(DenselyConnected(width))
            width += growth
        if place < len(blocks) - 1:
            parts += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1), nn.AvgPool2d(2)]
            width //= 2
    parts += [nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)]
    return nn.Sequential(*parts)


def _mixer(patch: int, width: int, layers: int) -> Any:
    """Tolstikhin et al., 2021: dense layers over patches and over channels, in turn."""
    from torch import nn

    patches = (IMAGE // patch) ** 2

    class MixerLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
            sizes = ((patches, width // 2), (width, 4 * width))
            self.dense = nn.ModuleList(
                nn.Sequential(nn.Linear(a, b), nn.GELU(), nn.Linear(b, a)) for a, b in sizes
            )

        def forward(self, x: Any) -> Any:
            x = x + self.dense[0](self.norms[0](x).transpose(1, 2)).transpose(1, 2)
            return x + self.dense[1](self.norms[1](x))

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, width, patch, patch)
            self.layers = nn.Sequential(*(MixerLayer() for _ in range(layers)), nn.LayerNorm(width))
            self.head = nn.Linear(width, 1000)

        def forward(self, x: Any) -> Any:
            return self.head(self.layers(self.patches(x).flatten(2).transpose(1, 2)).mean(1))

    return Mixer()


_BUILT: Final[dict[str, Callable[..., Any]]] = {
    "vgg": _vgg,
    "squeezenet": _squeezenet,
    "densenet": _densenet,
    "mixer": _mixer,
}


def _image(family: str, model: str, **config: Any) -> Architecture:
    return Architecture(family, "image", model, config)


def _text(family: str, model: str, **config: Any) -> Architecture:
    return Architecture(family, "text", model, config)


def _bert(layers: int, width: int) -> dict[str, int]:
    return {
        "num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
    }  # fmt: skip


def _efficient(width: float, depth: float) -> dict[str, Any]:
    return {"width_coefficient": width, "depth_coefficient": depth, "hidden_dim": round(1280 * width)}


def _regnet(kind: str, widths: list[int], depths: list[int], group: int) -> dict[str, Any]:
    return {
        "layer_type": kind, "embedding_size": 32, "hidden_sizes": widths, "depths": depths, "groups_width": group,
    }  # fmt: skip


_SHORT: Final = [2, 2, 6, 2]
_BASIC: Final = {"layer_type": "basic", "hidden_sizes": [64, 128, 256, 512]}
_GPT: Final = {"n_positions": 256, "use_cache": False}
ARCHITECTURES: Final[dict[str, Architecture]] = {
    "resnet18": _image("resnet", "ResNet/Model", depths=[2, 2, 2, 2], **_BASIC),
    "resnet34": _image("resnet", "ResNet/Model", depths=[3, 4, 6, 3], **_BASIC),
    "resnet50": _image("resnet", "ResNet/Model"),
    "resnet101": _image("resnet", "ResNet/Model", depths=[3, 4, 23, 3]),
    "mobilenetv1": _image("mobilenet", "MobileNetV1/Model"),
    "mobilenetv2": _image("mobilenet", "MobileNetV2/Model"),
    "mobilenetv2-035": _image("mobilenet", "MobileNetV2/Model", depth_multiplier=0.35),
    "efficientnet-b0": _image("efficientnet", "EfficientNet/Model", **_efficient(1.0, 1.0)),
    "efficientnet-b1": _image("efficientnet", "EfficientNet/Model", **_efficient(1.0, 1.1)),
    "regnety-400m": _image("regnet", "RegNet/Model", **_regnet("y", [48, 104, 208, 440], [1, 3, 6, 6], 8)),
    "regnety-1600m": _image("regnet", "RegNet/Model", **_regnet("y", [48, 120, 336, 888], [2, 6, 17, 2], 24)),
    "regnetx-400m": _image("regnet", "RegNet/Model", **_regnet("x", [32, 64, 160, 400], [1, 2, 7, 12], 16)),
    "convnext-tiny": _image("convnext", "ConvNext/Model"),
    "convnextv2-atto": _image("convnext", "ConvNextV2/Model", hidden_sizes=[40, 80, 160, 320], depths=_SHORT),
    "convnextv2-pico": _image("convnext", "ConvNextV2/Model", hidden_sizes=[64, 128, 256, 512], depths=_SHORT),
    "vit-tiny": _image("vit", "ViT/Model", **_bert(12, 192)),
    "vit-small": _image("vit", "ViT/Model", **_bert(12, 384)),
    "vit-base": _image("vit", "ViT/Model", **_bert(12, 768)),
    "dinov2-small": _image(
        "vit", "Dinov2/Model", image_size=IMAGE, num_hidden_layers=12, hidden_size=384, num_attention_heads=6
    ),
    "swin-tiny": _image("swin", "Swin/Model"),
    "segformer-b0": _image("segformer", "Segformer/Model"),
    "poolformer-s12": _image("poolformer", "PoolFormer/Model"),
    "pvt-tiny": _image("pvt", "Pvt/Model"),
    "mobilevit-xs": _image(
        "mobilevit", "MobileViT/Model", image_size=IMAGE, hidden_sizes=[96, 120, 144],
        neck_hidden_sizes=[16, 32, 48, 64, 80, 96, 384],
    ),
    "levit-128s": _image("levit", "Levit/Model"),
    "focalnet-tiny": _image("focalnet", "FocalNet/Model"),
    "bit-50": _image("bit", "Bit/Model"),
    "vgg11": _image("vgg", "vgg", layers=(1, 1, 2, 2, 2)),
    "vgg16": _image("vgg", "vgg", layers=(2, 2, 3, 3, 3)),
    "squeezenet": _image("squeezenet", "squeezenet"),
    "densenet121": _image("densenet", "densenet", blocks=(6, 12, 24, 16), growth=32),
    "mixer-s16": _image("mixer", "mixer", patch=16, width=512, layers=8),
    "bert-tiny": _text("bert", "Bert/Model", **_bert(2, 128)),
    "bert-mini": _text("bert", "Bert/Model", **_bert(4, 256)),
    "bert-small": _text("bert", "Bert/Model", **_bert(4, 512)),
    "bert-base": _text("bert", "Bert/Model", **_bert(12, 768)),
    "distilbert": _text("distilbert", "DistilBert/Model"),
    "albert-base": _text("albert", "Albert/Model", **_bert(12, 768)),
    "electra-small": _text("electra", "Electra/Model"),
    "gpt2": _text("gpt2", "GPT2/Model", **_GPT),
    "gpt2-mini": _text("gpt2", "GPT2/Model", n_embd=256, n_layer=4, n_head=4, **_GPT),
    "t5-small": _text("t5", "T5/EncoderModel", use_cache=False),
}  # fmt: skip
"""All networks by name: a new one is a row here."""


def architecture(name: str) -> Architecture:
    """Return the architecture called ``name``.

    Raises:
        InputError: there is none.
    """
    if name not in ARCHITECTURES:
        raise InputError(
            f"unknown network {name!r}; known: {', '.join(ARCHITECTURES)}, or a file that ends in .onnx"
        )
    return ARCHITECTURES[name]
