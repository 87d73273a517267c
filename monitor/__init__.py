"""Blindsight: estimate how good a deployed model is now, without waiting for labels.

Import all public names from here: ``from monitor import PoissonBinomial``. Python loads a name when you first
use it, so `import monitor` is quick. The modules below may move. The test kit is `monitor.testing`; the
contract of sources is in `connectors`.

On import, the package opens no socket, reads no clock and starts no thread.
"""

import lazy_loader

__version__ = "0.2.0"

# The names and their modules are in __init__.pyi, which type checkers and editors read too.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
