#include "weights/packed_weights.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace triptych {
namespace {

constexpr std::int64_t kMostLinears = 1 << 20;

std::vector<std::string> read_names(const JsonView& list) {
  std::vector<std::string> out;
  for (const JsonView& item : list.items()) out.push_back(item.as_string());
  return out;
}

ActivationQuant read_activation_quant(const JsonView& json) {
  const auto number = [&](const char* name) {
    const auto value = static_cast<float>(json.at(name).as_double());
    if (!std::isfinite(value)) json.at(name).fail_expected("a float32");
    return value;
  };
  const ActivationQuant out{number("scale"), number("offset")};
  if (!(out.step >= std::numeric_limits<float>::min())) json.at("scale").fail_expected("a number above zero");
  return out;
}

StoredLinear read_linear(const JsonView& json) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  StoredLinear out{.id = {json.at("name").as_string(), json.at("part").as_string()},
                   .format = json.at("format").as_string(),
                   .n_out = json.at("n_out").as_int(1, kMost),
                   .n_in = json.at("n_in").as_int(1, kMost),
                   .matrices = read_names(json.at("matrices")),
                   .n_rows = {},
                   .biases = read_names(json.at("biases")),
                   .activation_quant = {},
                   .arrays = read_names(json.at("arrays"))};
  if (const auto quant = json.find("activation_quant")) out.activation_quant = read_activation_quant(*quant);
  std::int64_t sum = 0;
  for (const JsonView& n : json.at("n_rows").items()) {
    out.n_rows.push_back(n.as_int(1, kMost));
    sum += std::min(out.n_rows.back(), kMost - sum);
  }
  if (out.matrices.empty() || out.n_rows.size() != out.matrices.size())
    json.at("n_rows").fail_expected(fmt::format("{} numbers", out.matrices.size()));
  if (sum != out.n_out) json.at("n_rows").fail_expected(fmt::format("numbers with the sum {}", out.n_out));
  if (!out.biases.empty() && out.biases.size() != out.matrices.size())
    json.at("biases").fail_expected(fmt::format("none or {} names", out.matrices.size()));
  if (out.arrays.empty()) json.at("arrays").fail_expected("one name at least");
  return out;
}

bool is_digest(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

Json PackedIndex::to_json() const {
  Json out = {{"format", "triptych packed weights"}, {"format_version", version}};
  out["linears"] = Json::array();
  for (const StoredLinear& linear : linears) {
    out["linears"].push_back({{"name", linear.id.name},
                              {"part", linear.id.part},
                              {"format", linear.format},
                              {"n_out", linear.n_out},
                              {"n_in", linear.n_in},
                              {"matrices", linear.matrices},
                              {"n_rows", linear.n_rows},
                              {"biases", linear.biases},
                              {"arrays", linear.arrays}});
    if (const ActivationQuant& quant = linear.activation_quant; quant.step > 0)
      out["linears"].back()["activation_quant"] = {{"scale", quant.step}, {"offset", quant.offset}};
  }
  out["blake2b"] = checksums;
  return out;
}

PackedIndex PackedIndex::parse(const JsonView& json) {
  PackedIndex out;
  out.version = json.at("format_version").as_int(1);
  if (out.version != kPackedFormatVersion)
    fail(ErrorCode::kUnsupported,
         "{}: packed weights of format version {}; this program reads version {}: convert the original "
         "checkpoint again, or use the program that wrote it",
         json.path(), out.version, kPackedFormatVersion);
  for (const JsonView& item : json.at("linears").items()) {
    if (static_cast<std::int64_t>(out.linears.size()) == kMostLinears)
      json.at("linears").fail_expected(fmt::format("at most {} linears", kMostLinears));
    out.linears.push_back(read_linear(item));
  }
  for (const auto& [tensor, digest] : json.at("blake2b").members()) {
    out.checksums.emplace(tensor, digest.as_string());
    if (!is_digest(out.checksums[tensor])) digest.fail_expected("64 hexadecimal digits");
  }
  return out;
}

PackedLinear find_packed_linear(const WeightTable& table, const StoredLinear& stored) {
  PackedLinear out;
  out.n_out = stored.n_out;
  out.n_in = stored.n_in;
  out.activation_quant = stored.activation_quant;
  try {
    out.format = QuantFormat::parse(stored.format);
  } catch (const Error& error) {
    fail(ErrorCode::kInvalidFile, "triptych.json: {}: {}", stored.id.name, error.what());
  }
  for (const std::string& array : stored.arrays) {
    const std::string name = stored.tensor_name(array);
    const WeightEntry* entry = table.find(name);
    if (entry == nullptr)
      fail(ErrorCode::kInvalidFile, "triptych.json: {}: tensor {} is not in the weight file", stored.id.name,
           name);
    out.arrays.push_back({array, entry->view, entry->owner});
  }
  return out;
}

PackedWeights::PackedWeights(WeightTable& table, const PackedIndex& index) : plain_(table) {
  for (const StoredLinear& stored : index.linears) {
    auto item = std::make_unique<Item>();
    item->stored = stored;
    item->linear = find_packed_linear(table, stored);
    items_.push_back(std::move(item));
  }
  // Only now: two linears may not share an array, and what is left are tensors as published.
  for (const auto& item : items_)
    for (const std::string& array : item->stored.arrays)
      if (!table.erase(item->stored.tensor_name(array)))
        fail(ErrorCode::kInvalidFile, "triptych.json: tensor {} occurs twice",
             item->stored.tensor_name(array));
  index_items();
}

void PackedWeights::index_items() {
  by_key_.clear();
  packed_names_.clear();
  for (const auto& item : items_) {
    const StoredLinear& stored = item->stored;
    if (!by_key_.emplace(stored.id.text(), item.get()).second)
      fail(ErrorCode::kInvalidFile, "triptych.json: linear {} occurs twice", stored.id.text());
    packed_names_.insert(stored.matrices.begin(), stored.matrices.end());
    for (const std::string& bias : stored.biases)
      if (!bias.empty()) packed_names_.insert(bias);
  }
}

void PackedWeights::rename(const std::function<std::string(std::string_view)>& rule) {
  plain_.rename(rule);
  std::map<std::string, std::string, std::less<>> published;
  const auto renamed = [&](const std::string& name) {
    std::string out = rule(name);
    const auto known = published_.find(name);
    published.emplace(out, known == published_.end() ? name : known->second);
    return out;
  };
  for (auto& item : items_) {
    StoredLinear& stored = item->stored;
    stored.id.name = renamed(stored.id.name);
    for (std::string& name : stored.matrices) name = renamed(name);
    for (std::string& name : stored.biases)
      if (!name.empty()) name = renamed(name);
  }
  published_ = std::move(published);
  std::erase_if(items_, [](const auto& item) { return item->stored.id.name.empty(); });
  index_items();
}

std::string PackedWeights::published_name(std::string_view name) const {
  const auto found = published_.find(name);
  return found == published_.end() ? plain_.published_name(name) : found->second;
}

bool PackedWeights::has(std::string_view name) const { return plain_.has(name) || is_packed(name); }

WeightEntry PackedWeights::get(std::string_view name, const Shape& shape) {
  if (!plain_.has(name) && is_packed(name))
    fail(ErrorCode::kInvalidFile, "tensor {} is stored quantized, as part of another linear than expected",
         name);
  return plain_.get(name, shape);
}

const PackedLinear* PackedWeights::packed(const LinearKey& key) {
  const auto found = by_key_.find(key.text());
  if (found == by_key_.end()) return nullptr;
  Item& item = *found->second;
  const StoredLinear& stored = item.stored;
  if (stored.n_out != key.n_out || stored.n_in != key.n_in)
    fail(ErrorCode::kInvalidFile, "{}: expected a linear [{}, {}], the stored one is [{}, {}]", key.text(),
         key.n_out, key.n_in, stored.n_out, stored.n_in);
  if (stored.matrices != key.matrices || stored.n_rows != key.n_rows || stored.biases != key.biases)
    fail(ErrorCode::kInvalidFile, "{}: the stored linear was made of other matrices or biases than expected",
         key.text());
  item.used = true;
  return &item.linear;
}

std::vector<std::string> PackedWeights::unused() const {
  std::vector<std::string> out = plain_.unused();
  for (const auto& item : items_)
    if (!item->used) out.push_back(item->stored.id.text());
  return out;
}

}  // namespace triptych
