"""SciPy's own classes made to multiply through this package, and the way back."""

from typing import Any, Final

from tensorwise.sparse.methods import COMPRESSED, quick_methods
from tensorwise.toolchain.forks import lock

_LOCK: Final = lock()
_ORIGINALS: Final[dict[type, dict[str, Any]]] = {}
_ABSENT: Final = object()


def patch_scipy() -> None:
    """Have SciPy's CSR, CSC and BSR arrays and matrices multiply by the kernels of this package, in this process.

    Programs that use SciPy's classes are faster without a changed line. Arrays are read where they lie at each call, so that
    changes are seen. Everything else of the classes is as it was. Doing it twice is doing it once.
    """
    with _LOCK:
        if _ORIGINALS:
            return
        quick = {cls: {**quick_methods(cls), "__getstate__": _state} for cls in COMPRESSED}
        for cls, methods in quick.items():
            _ORIGINALS[cls] = {name: vars(cls).get(name, _ABSENT) for name in methods}
            for name, method in methods.items():
                setattr(cls, name, method)


def unpatch_scipy() -> None:
    """Undo `patch_scipy`; without one nothing is done."""
    with _LOCK:
        for cls, methods in _ORIGINALS.items():
            for name, method in methods.items():
                if method is _ABSENT:
                    delattr(cls, name)
                else:
                    setattr(cls, name, method)
        _ORIGINALS.clear()


def is_patched() -> bool:
    """Whether `patch_scipy` is in force."""
    return bool(_ORIGINALS)


def _state(self: Any) -> Any:
    """Return what a pickle, a copy or a hash of a matrix takes: what it holds without the patch."""
    state = object.__getstate__(self)
    held, *slots = state if isinstance(state, tuple) else (state,)
    held = {name: value for name, value in (held or {}).items() if name != "_tensorwise"}
    return (held, *slots) if slots else held
