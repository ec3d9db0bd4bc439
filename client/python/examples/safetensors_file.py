"""The safetensors format, which is simple: the header's length (u64), the header (JSON: for each
tensor its type, shape and place in the data), the data. Enough of it for the examples: arrays of
numpy's types."""

import json
import struct

import numpy as np

_NAME = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "|u1"}
_TYPE = {dtype: name for name, dtype in _NAME.items()}


def save(path, tensors):
    header, end = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": _TYPE[tensor.dtype.str], "shape": list(tensor.shape),
                        "data_offsets": [end, end + tensor.nbytes]}
        end += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).data)


def places(memory):
    """Of each tensor in a file's bytes: (dtype, shape, first byte, bytes). `memory`: u8 array."""
    length, = struct.unpack("<Q", memory[:8].tobytes())
    header = json.loads(memory[8:8 + length].tobytes())
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        found[name] = (np.dtype(_NAME[entry["dtype"]]), tuple(entry["shape"]), 8 + length + begin,
                       end - begin)
    return found


def views(memory):
    """The tensors, as views of the file's bytes: nothing is copied."""
    return {name: memory[begin:begin + size].view(dtype).reshape(shape)
            for name, (dtype, shape, begin, size) in places(memory).items()}
