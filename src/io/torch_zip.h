// PyTorch's own checkpoint files (pytorch_model*.bin since PyTorch 1.6): a zip archive (members stored,
// zip64) with a pickle `data.pkl` and one member per storage. The pickle is never run: a small reader knows
// only the opcodes that a state dict needs and a list of four kinds of global names; anything else is an
// error that names it. Sources: PKWARE APPNOTE.TXT 6.3.10, sections 4.3-4.5; CPython Lib/pickletools.py;
// PyTorch torch/serialization.py
// (_save) and torch/_utils.py (_rebuild_tensor_v2).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "tensor/weight_table.h"

namespace triptych {

/// Maps a file; views point into the mapping (a tensor that is misaligned, or not contiguous, is copied).
/// Values of the dict that are no tensors are skipped; nested dicts give dotted names ("model.a").
/// Throws Error(kInvalidFile) or kUnsupported (compressed members, big-endian, the old non-zip format).
WeightTable read_torch_zip(const std::filesystem::path& path);

/// The same for bytes in memory that live as long as `owner`. `source` goes into errors.
WeightTable read_torch_zip(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                           std::string_view source);

}  // namespace triptych
