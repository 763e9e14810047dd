"""Bytes -> cut points, content-defined or fixed (docs/format.md, section 9). Sees no files and no keys but the seed."""

from datasync.chunker.cutter import CDC_AVERAGE, CDC_MAXIMUM, CDC_MINIMUM, FIXED_LENGTH, Cutter, cdc, fixed

__all__ = ["CDC_AVERAGE", "CDC_MAXIMUM", "CDC_MINIMUM", "FIXED_LENGTH", "Cutter", "cdc", "fixed"]
