"""How much of anything a header may have before it is called damaged. Real ones have a tenth."""

from __future__ import annotations

HEADER_MOST = 128 << 20
"""Bytes of a whole header, tables included; the largest known have 20 MB."""
KEYS_MOST = 1 << 14
TENSORS_MOST = 1 << 16
TENSORS_KEPT_MOST = 8 << 20
"""Bytes of all tensors' entries together."""
NAME_MOST = 1024
"""Bytes of a key's or a tensor's name. ggml itself takes 63 for tensors."""
GGML_NAME_MOST = 63
DIMENSIONS_MOST = 4
"""GGML_MAX_DIMS."""
ELEMENTS_MOST = 1 << 62
"""Of one tensor; and bytes of all."""
STRINGS_MOST = 1 << 22
"""Elements of all arrays of strings together; vocabularies have up to 262,144."""
ARRAY_KEPT_MOST = 4096
"""Elements of an array that is kept; of a longer one only the length is."""
STRINGS_KEPT_BYTES = 64 << 10
"""Bytes of an array of strings that is kept."""
STRING_KEPT_BYTES = 1 << 20
"""Bytes of one string that are kept, such as a chat template's."""
KEPT_MOST = 4 << 20
"""Bytes of all that is kept of the metadata."""
