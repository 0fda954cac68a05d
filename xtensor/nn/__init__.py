"""Neural networks: functions in the style of the standard's extensions, with the names of torch.nn.functional.

>>> xt.nn.softmax(xt.asarray([0.0, 0.0]))
Tensor([0.5, 0.5], dtype=float64)
"""

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
