"""What people call on torch tensors. Each call asks the tensors' own device for its target, and dispatch for a kernel.

Each op is also an operator of torch (`torch.ops.lanewise.linear`, ...) with a fake implementation: under torch.compile it stays one node of the
graph, and whatever dispatch chooses runs when the graph does. There is no workspace and nothing is remembered between calls.
"""

from lanewise.errors import DeviceError

try:
    import torch  # noqa: F401  (the ops below need it, and this says so in words)
except ImportError:
    raise DeviceError("lanewise.ops works on torch tensors, and torch is not installed; pip install 'lanewise[gpu]'") from None

from lanewise import witness
from lanewise.ops.dense import linear
from lanewise.ops.experts import grouped_linear
from lanewise.ops.quantized import quant_linear

__all__ = ["grouped_linear", "linear", "quant_linear"]

witness.until_exit()  # nothing unless LANEWISE_WITNESS is set
