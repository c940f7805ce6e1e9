"""Writes the PyTorch files that src/io/torch_zip_test.cc reads. Made with torch 2.13.0; values are small counting numbers."""
import collections
import os

import torch

os.chdir(os.path.dirname(os.path.abspath(__file__)))


def count(*shape, dtype=torch.float32):
    n = 1
    for size in shape:
        n *= size
    return torch.arange(n, dtype=torch.float32).reshape(shape).to(dtype)


module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
with torch.no_grad():
    module[0].weight.copy_(count(2, 3))
    module[0].bias.copy_(count(2))
torch.save(module.state_dict(), "module.bin")

base = count(4, 6)
tensors = {
    "f16": count(2, 2, dtype=torch.float16),
    "bf16": count(2, 2, dtype=torch.bfloat16),
    "f64": count(3, dtype=torch.float64),
    "i8": count(5, dtype=torch.int8),
    "u8": count(5, dtype=torch.uint8),
    "i16": count(5, dtype=torch.int16),
    "i32": count(5, dtype=torch.int32),
    "i64": count(5, dtype=torch.int64),
    "bool": torch.tensor([True, False]),
    "f8e4m3": count(4, dtype=torch.float8_e4m3fn),
    "f8e5m2": count(4, dtype=torch.float8_e5m2),
    "u16": count(4).to(torch.uint16),
    "scalar": torch.tensor(7.0),
    "empty": torch.zeros(0, 3),
    "base": base,
    "tied": base,
    "rows": base[1:3],
    "slice": base[1:3, 2:4],
    "transposed": base.t(),
    "column": base[:, 2],
    "expanded": torch.tensor([5.0]).expand(3),
    "parameter": torch.nn.Parameter(count(2, 2)),
}
torch.save(tensors, "kinds.bin")
torch.save({"w": count(2, 3), "n": 3}, "protocol4.bin", pickle_protocol=4)
torch.save({"w": count(2, 3), "n": 3}, "protocol5.bin", pickle_protocol=5)
torch.save(
    {
        "state_dict": collections.OrderedDict(a=count(2), b=count(3)),
        "epoch": 3,
        "large": 1 << 40,
        "negative": -3,
        "lr": 0.5,
        "note": "text",
        "none": None,
        "list": [1, 2, (3,)],
        7: "number as key",
    },
    "nested.bin",
)
torch.save({"w": count(2, 3)}, "before_1_6.bin", _use_new_zipfile_serialization=False)


class Evil:
    def __reduce__(self):
        return (os.system, ("echo no",))


torch.save({"w": count(2), "evil": Evil()}, "evil.bin")
