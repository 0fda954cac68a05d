"""Neural networks: functions in the style of the standard's extensions, with the names of torch.nn.functional.

>>> xt.nn.softmax(xt.asarray([0.0, 0.0]))
Tensor([0.5, 0.5], dtype=float64)
"""

from types import ModuleType as _ModuleType

from .activations import *
from .alignments import *
from .attention import *
from .conv import *
from .layers import *
from .losses import *
from .normalisers import *
from .norms import *
from .padding import *
from .pool import *
from .resizing import *
from .unfold import *


def __dir__() -> list[str]:
    return sorted([name for name, value in globals().items() if name[0] != "_" and type(value) is not _ModuleType])
