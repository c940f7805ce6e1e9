// Reads every byte of every tensor, so that the address sanitizer sees a view that leaves its memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "only_errors.h"
#include "tensor/weight_table.h"

namespace triptych::fuzz {

inline void touch(const WeightTable& table) {
  std::size_t budget_bytes = std::size_t{1} << 20;  // many tensors may share a storage
  for (const WeightEntry& entry : table) {
    const TensorView& view = entry.view;
    require(view.is_contiguous(), "a dense tensor");
    require(view.size_bytes() == 0 ||
                reinterpret_cast<std::uintptr_t>(view.data()) % size_bytes(view.dtype()) == 0,
            "an aligned tensor");
    require(table.find(entry.name) == &entry, "an entry under its name");
    if (view.size_bytes() == 0) continue;
    volatile unsigned char sum = 0;
    const auto* bytes = static_cast<const unsigned char*>(view.cdata());
    if (view.size_bytes() <= budget_bytes) {
      for (std::size_t i = 0; i < view.size_bytes(); ++i) sum = static_cast<unsigned char>(sum + bytes[i]);
      budget_bytes -= view.size_bytes();
    } else {
      sum = static_cast<unsigned char>(bytes[0] + bytes[view.size_bytes() - 1]);
    }
  }
}

}  // namespace triptych::fuzz
