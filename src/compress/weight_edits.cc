#include "compress/weight_edits.h"

#include "base/error.h"
#include "tensor/convert.h"

namespace triptych::compress {

Tensor WeightEdits::value_of(const std::string& name) const {
  if (const auto found = replaced_.tensors.find(name); found != replaced_.tensors.end())
    return to_f32(found->second->view());
  const WeightEntry* entry = source_->weights().find(name);
  if (entry == nullptr)
    fail(ErrorCode::kUnsupported, "tensor {} is not in {}: it cannot be compressed from two checkpoints",
         name, source_->directory().string());
  Tensor out = to_f32(entry->view);
  release(*entry);
  return out;
}

bool WeightEdits::has(const std::string& name) const {
  return replaced_.tensors.contains(name) || source_->weights().find(name) != nullptr;
}

void WeightEdits::set(const std::string& name, Tensor value) {
  replaced_.tensors[name] = std::make_shared<const Tensor>(std::move(value));
  changed_.insert(name);
}

const QuantizedMatrix* WeightEdits::codes_of(const std::string& name) const {
  const auto found = replaced_.matrices.find(name);
  return found == replaced_.matrices.end() ? nullptr : found->second.get();
}

void WeightEdits::set_codes(const std::string& name, std::shared_ptr<const QuantizedMatrix> codes) {
  replaced_.matrices[name] = std::move(codes);
  changed_.insert(name);
}

void WeightEdits::drop_codes(const std::string& name) { replaced_.matrices.erase(name); }

void WeightEdits::drop_value(const std::string& name) { replaced_.tensors.erase(name); }

}  // namespace triptych::compress
