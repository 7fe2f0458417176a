"""Modules of torch whose forward goes through Lanewise's dispatch.

>>> from lanewise import nn
>>> nn.Linear(4, 2)
Linear(in_features=4, out_features=2, bias=True)
"""

from lanewise.integrations.quantized import QuantExperts, QuantLinear
from lanewise.integrations.torch import Linear

__all__ = ["Linear", "QuantExperts", "QuantLinear"]
