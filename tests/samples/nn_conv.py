"""Samples of the convolution family and of pooling."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.samples import Sample, complexes, normal


def sample(
    name: str, *args: Any, note: str = "", second: bool = True, given: tuple[Any, ...] = (), **kind: Any
) -> Sample:
    """Return a sample of a function of `nn`; given: what it takes after the arrays."""

    def call(xp: Any, *tensors: Any) -> Any:
        return getattr(xp.nn, name)(*tensors, *given, **kind)

    return Sample(f"nn.{name}", call, args, note, second)


PLACES = np.random.default_rng(0).integers(0, 12, (1, 2, 2, 2))
CIRCULAR: dict[str, Any] = {"padding": [(1, 2)], "stride": 2, "padding_mode": "circular"}

SAMPLES = [
    sample("conv", normal(2, 3, 7), normal(4, 3, 3), normal(4), note="1-d", stride=2, padding=1),
    sample("conv", normal(1, 2, 5, 4), normal(4, 1, 3, 2), normal(4), note="depthwise", groups=2, padding=1),
    sample(
        "conv", normal(1, 5, 4, 4), normal(4, 2, 3, 2), note="last grouped", groups=2, layout="NHWC", padding="same"
    ),
    sample("conv", normal(1, 2, 3, 4, 3), normal(2, 2, 2, 2, 2), note="3-d dilated", dilation=2, padding="full"),
    sample("conv", complexes(2, 2, 6), complexes(3, 2, 3), complexes(3), note="complex"),
    sample("conv", normal(2, 2, 6), complexes(3, 2, 1), note="1x1 real and complex"),
    sample("conv", normal(1, 2, 6), normal(2, 2, 3), note="reflect", padding=2, padding_mode="reflect"),
    sample("conv", normal(1, 2, 6), normal(2, 2, 3), note="circular", padding=[(1, 2)], padding_mode="circular"),
    sample("conv", normal(0, 2, 6), normal(2, 2, 3), note="empty"),
    sample("conv", normal(1, 2, 6), normal(2, 2, 3), note="cropped", padding=[(-1, 2)]),
    sample("conv_transpose", normal(1, 4, 3, 3), normal(4, 2, 3, 2), normal(4), groups=2, stride=2, output_padding=1),
    sample("conv_transpose", complexes(1, 2, 4), complexes(2, 3, 3), note="complex", stride=3, dilation=2),
    sample("conv_transpose", normal(1, 2, 4), normal(2, 3, 3), normal(3), note="circular", **CIRCULAR),
    sample("unfold", normal(1, 2, 5, 4), given=((3, 2),), padding=1, dilation=(1, 2)),
    sample("unfold", complexes(1, 5, 2), given=(3,), note="last complex", stride=2, layout="NWC"),
    sample("fold", normal(1, 12, 9), given=((4, 3), (3, 2)), padding=((1, 0), (0, 1))),
    sample("pad", normal(3, 4), given=(((1, 2), (2, -1)),)),
    sample("pad", complexes(3, 4), given=(2,), note="reflect", mode="reflect"),
    sample("pad", normal(3, 4), given=(((1, 2), (0, 3)),), note="replicate", mode="replicate"),
    sample("correlate", complexes(7), complexes(4), given=("same",)),
    sample("correlate", complexes(3), complexes(5), given=("full",), note="shorter"),
    sample("convolve", normal(4, 5), normal(2, 3), given=("same",), note="2-d"),
    sample("max_pool", normal(1, 2, 7, 6), given=((3, 2),), stride=1, padding=(1, 0)),
    sample("max_pool", normal(1, 7, 2), given=(3,), note="last ceil", ceil_mode=True, layout="NWC"),
    sample("max_pool_with_indices", normal(1, 2, 7, 6), given=((3, 2),), padding=(1, 0)),
    Sample(
        "nn.max_unpool",
        lambda xp, x: xp.nn.max_unpool(x, xp.asarray(PLACES, device=x.device), (3, 4)),
        (normal(1, 2, 2, 2),),
    ),
    sample("avg_pool", normal(1, 2, 7, 6), given=((3, 2),), padding=(1, 0), count_include_pad=False),
    sample("avg_pool", complexes(1, 2, 7), given=(3,), note="complex", ceil_mode=True),
    sample("lp_pool", normal(1, 2, 6), given=(2,), p=3.0),
    sample("global_avg_pool", normal(2, 3, 4, 2)),
    sample("global_max_pool", normal(2, 4, 2, 3), layout="NHWC"),
    sample("adaptive_avg_pool", normal(1, 2, 7, 5), given=((3, 4),)),
    sample("adaptive_avg_pool", complexes(1, 9, 6, 2), given=((3, 1),), note="parts", layout="NHWC"),
    sample("avg_pool", normal(1, 2, 10, 15), given=(5,), note="parts"),
    sample("max_pool", normal(1, 2, 6, 5), given=((3, 5),), note="parts"),
    sample("interpolate", normal(1, 2, 3, 4), given=((5, 2),)),
    sample("interpolate", normal(1, 5, 2), given=(3, None, "linear"), note="last", layout="NWC"),
    sample("interpolate", normal(1, 1, 4, 3), given=(None, 1.7, "bicubic"), note="cubic", align_corners=True),
    sample("pixel_shuffle", normal(2, 8, 2, 3), given=(2,)),
    sample("pixel_unshuffle", normal(2, 4, 6), given=(2,)),
    sample("grid_sample", normal(1, 2, 4, 3), normal(1, 3, 2, 2)),
    sample("grid_sample", normal(1, 2, 4, 3), normal(1, 3, 2, 2), note="border", padding_mode="border"),
    sample("affine_grid", normal(1, 2, 3), given=((1, 2, 3, 4),)),
    sample("adaptive_max_pool", normal(1, 2, 7, 5), given=((3, 4),)),
]
