"""numpy, imported when a calculation first needs it: `from trainhall.arrays import Floats, np`.

Its import takes 13 MB and a tenth of a second, which a coordinator that no job reports to, and most
commands, do without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["Bools", "Floats", "Ints", "RandomGenerator", "np"]

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator as RandomGenerator
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
else:

    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            value = getattr(import_module("numpy"), name)
            setattr(self, name, value)
            return value

    np = _Numpy()
    Bools = Floats = Ints = RandomGenerator = Any
