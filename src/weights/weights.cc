#include "weights/weights.h"

#include "base/error.h"
#include "tensor/convert.h"
#include "weights/packed_weights.h"

namespace triptych {
namespace {

bool is_buffer_name(std::string_view name) {
  for (const std::string_view tail :
       {"rotary_emb.inv_freq", "position_ids", "masked_bias", "attn.bias", "attention.bias"})
    if (name.size() >= tail.size() && name.substr(name.size() - tail.size()) == tail)
      return tail != "attn.bias" && tail != "attention.bias";
  return false;
}

// Stands for a linear that was written away.
class SizedLinear final : public LinearWeight {
 public:
  explicit SizedLinear(const LinearWeight& like) : n_out_(like.n_out()), n_in_(like.n_in()) {}
  std::int64_t n_out() const noexcept override { return n_out_; }
  std::int64_t n_in() const noexcept override { return n_in_; }
  std::size_t owned_bytes() const noexcept override { return 0; }
  std::size_t read_bytes() const noexcept override { return 0; }

 private:
  std::int64_t n_out_, n_in_;
};

}  // namespace

PartSizes::Size& PartSizes::part(std::string_view name) {
  for (auto& [known, size] : parts)
    if (known == name) return size;
  parts.emplace_back(std::string(name), Size{});
  return parts.back().second;
}

Binder Binder::scope(std::string_view prefix) const {
  Binder child = *this;
  child.prefix_ = full(prefix) + ".";
  return child;
}

Binder Binder::root() const {
  Binder out = *this;
  out.prefix_.clear();
  return out;
}

void Binder::count(const WeightEntry& entry) { sizes_.part(part_).n_parameters += entry.view.numel(); }

void Binder::count_bytes(const WeightEntry& entry) {
  PartSizes::Size& size = sizes_.part(part_);
  (entry.is_mapped ? size.mapped_bytes : size.owned_bytes) +=
      static_cast<std::int64_t>(entry.view.size_bytes());
}

// For whoever writes down what a model takes.
void Binder::report(const WeightEntry& entry) {
  if (options_.sink != nullptr) options_.sink->tensor(weights_.published_name(entry.name), entry);
}

namespace {

// "a.q_proj+k_proj+v_proj": the first matrix's name, and what the others' names end with.
std::string name_of(const LinearKey& key) {
  const auto stem = [](std::string_view name) {
    constexpr std::string_view kEnd = ".weight";
    return name.ends_with(kEnd) ? name.substr(0, name.size() - kEnd.size()) : name;
  };
  std::string out(stem(key.name));
  for (std::size_t i = 1; i < key.matrices.size(); ++i) {
    const std::string_view other = stem(key.matrices[i]);
    const std::size_t dot = other.rfind('.');
    out += '+';
    out += dot == std::string_view::npos ? other : other.substr(dot + 1);
  }
  return out;
}

}  // namespace

std::optional<QuantFormat> Binder::format_of(const LinearKey& key, const LinearTraits& traits) const {
  if (!options_.quantize_to) return std::nullopt;
  return options_.quantize_to({id_of(key), traits, part_, key.n_out, key.n_in});
}

// Whether a linear is the embedding read once more, a tied output layer: its parameters are counted.
bool Binder::is_embedding(const LinearKey& key) const {
  return key.matrices.size() == 1 && sizes_.embeddings.contains(key.matrices.front());
}

std::unique_ptr<LinearWeight> Binder::count_linear(const LinearKey& key, const LinearTraits& traits,
                                                   std::unique_ptr<LinearWeight> made, bool is_mapped) {
  if (traits.role == LinearRole::kPixelInput) made->set_takes_pixels();
  PartSizes::Size& size = sizes_.part(part_);
  if (made->multiplies_int8()) size.n_int8_parameters += made->n_out() * made->n_in();
  size.read_bytes += static_cast<std::int64_t>(made->read_bytes());
  size.owned_bytes += static_cast<std::int64_t>(made->owned_bytes());
  PartSizes::Linear linear{made.get(), part_, name_of(key), id_of(key),
                           traits,     {},    key.n_rows,   is_embedding(key)};
  for (const std::string& name : key.matrices) linear.matrices.push_back(weights_.published_name(name));
  sizes_.linears.push_back(std::move(linear));
  // What a tied output layer borrows is the embedding's, unless it was packed.
  if (!is_embedding(key) || !made->packed().empty())
    (is_mapped ? size.mapped_bytes : size.owned_bytes) += static_cast<std::int64_t>(made->borrowed_bytes());
  return made;
}

std::unique_ptr<LinearWeight> Binder::stored(const LinearKey& key, const LinearTraits& traits) {
  const PackedLinear* packed = weights_.packed(key);
  if (packed == nullptr) return nullptr;
  LinearSpec spec;
  spec.name = key.text();
  spec.add(*packed);
  PartSizes::Size& size = sizes_.part(part_);
  if (!is_embedding(key)) size.n_parameters += key.n_out * key.n_in;
  for (std::size_t i = 0; i < key.biases.size(); ++i)
    if (!key.biases[i].empty()) size.n_parameters += key.n_rows[i];
  return count_linear(key, traits, backend_.prepare_linear(spec), true);
}

std::unique_ptr<LinearWeight> Binder::prepare(const LinearKey& key, const LinearTraits& traits,
                                              LinearSpec& spec) {
  const LinearId id = id_of(key);
  const std::optional<QuantFormat> format = spec.target_format();
  if (options_.activation_quants != nullptr && format && format->code == QuantCode::kInt8 &&
      format->group_size == QuantFormat::kWholeRow)
    if (const auto found = options_.activation_quants->find(id); found != options_.activation_quants->end())
      spec.activation_quant = found->second;
  auto made = backend_.prepare_linear(spec);
  const bool is_mapped = spec.parts.front().is_mapped();
  if (options_.sink == nullptr) return count_linear(key, traits, std::move(made), is_mapped);
  if (!format) {
    // Rows, convolutions and transposed matrices were reported whole.
    for (const LinearPart& part : spec.parts)
      if (key.part.empty()) report(*part.dense());
    for (const LinearPart& part : spec.parts)
      if (key.part.empty() && !part.bias.view.empty()) report(part.bias);
    return count_linear(key, traits, std::move(made), is_mapped);
  }
  StoredLinear out{.id = id,
                   .format = format->to_string(),
                   .n_out = key.n_out,
                   .n_in = key.n_in,
                   .matrices = {},
                   .n_rows = key.n_rows,
                   .biases = {},
                   .activation_quant = spec.activation_quant,
                   .arrays = {}};
  for (const std::string& name : key.matrices) out.matrices.push_back(weights_.published_name(name));
  for (const std::string& name : key.biases)
    out.biases.push_back(name.empty() ? "" : weights_.published_name(name));
  for (const PackedArray& array : made->packed()) out.arrays.push_back(array.name);
  options_.sink->linear(out, *made);
  made = count_linear(key, traits, std::move(made), false);
  return std::make_unique<SizedLinear>(*made);
}

std::unique_ptr<LinearWeight> Binder::linear_rows(std::string_view weight, std::string_view bias,
                                                  std::int64_t n_rows, std::int64_t n_in, std::int64_t begin,
                                                  std::int64_t end) {
  const LinearKey key{.name = full(weight),
                      .part = fmt::format("[{}:{}]", begin, end),
                      .n_out = end - begin,
                      .n_in = n_in,
                      .matrices = {full(weight)},
                      .n_rows = {end - begin},
                      .biases = {full(bias)}};
  if (auto ready = stored(key, {})) return ready;
  LinearSpec spec;
  spec.name = full(weight);
  WeightEntry w = weights_.get(spec.name, {n_rows, n_in});
  WeightEntry b = weights_.get(full(bias), {n_rows});
  spec.format = format_of(key, {});
  if (!spec.format) {
    report(w);
    report(b);
  }
  w.view = w.view.rows(begin, end);
  b.view = b.view.rows(begin, end);
  count(w);
  count(b);
  spec.add(std::move(w), std::move(b));
  return prepare(key, {}, spec);
}

std::unique_ptr<LinearWeight> Binder::linear_transposed(std::string_view weight, std::int64_t n_out,
                                                        std::int64_t n_in) {
  const LinearKey key{.name = full(weight),
                      .part = "^T",
                      .n_out = n_out,
                      .n_in = n_in,
                      .matrices = {full(weight)},
                      .n_rows = {n_out},
                      .biases = {}};
  if (auto ready = stored(key, {})) return ready;
  LinearSpec spec;
  spec.name = full(weight);
  WeightEntry entry = weights_.get(spec.name, {n_in, n_out});
  count(entry);
  spec.format = format_of(key, {});
  if (!spec.format) report(entry);
  const Tensor stored_values = to_f32(entry.view);
  release(entry);
  auto turned = std::make_shared<Tensor>(DType::kF32, Shape{n_out, n_in});
  for (std::int64_t k = 0; k < n_in; ++k)
    for (std::int64_t n = 0; n < n_out; ++n) turned->f32()[n * n_in + k] = stored_values.f32()[k * n_out + n];
  entry.view = turned->view();
  entry.owner = std::move(turned);
  entry.is_mapped = false;
  spec.add(std::move(entry));
  return prepare(key, {}, spec);
}

std::unique_ptr<LinearWeight> Binder::linear(std::string_view name, std::int64_t n_out, std::int64_t n_in,
                                             Bias bias, const LinearTraits& traits) {
  const StackPart part{name, n_out, bias};
  return bind_stack({&part, 1}, n_in, traits);
}

std::unique_ptr<LinearWeight> Binder::linear_stack(std::span<const StackPart> parts, std::int64_t n_in) {
  return bind_stack(parts, n_in, {});
}

std::unique_ptr<LinearWeight> Binder::bind_stack(std::span<const StackPart> parts, std::int64_t n_in,
                                                 const LinearTraits& traits) {
  LinearKey key{.name = full(parts.front().name) + ".weight",
                .part = {},
                .n_out = 0,
                .n_in = n_in,
                .matrices = {},
                .n_rows = {},
                .biases = {}};
  bool any_bias = false;
  for (const StackPart& part : parts) any_bias = any_bias || part.bias == Bias::kRequired;
  for (const StackPart& part : parts) {
    key.n_out += part.n_out;
    key.matrices.push_back(full(part.name) + ".weight");
    key.n_rows.push_back(part.n_out);
    if (any_bias) key.biases.push_back(part.bias == Bias::kRequired ? full(part.name) + ".bias" : "");
  }
  if (auto ready = stored(key, traits)) return ready;
  LinearSpec spec;
  spec.name = full(parts.front().name);
  spec.format = format_of(key, traits);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    spec.add(weights_.matrix(key.matrices[i], {key.n_rows[i], n_in}));
    if (!is_embedding(key)) sizes_.part(part_).n_parameters += key.n_rows[i] * n_in;
    if (!any_bias || key.biases[i].empty()) continue;
    spec.parts.back().bias = weights_.get(key.biases[i], {key.n_rows[i]});
    count(spec.parts.back().bias);
  }
  return prepare(key, traits, spec);
}

std::unique_ptr<LinearWeight> Binder::patch_embedding(std::string_view weight, const Shape& shape,
                                                      std::string_view bias) {
  constexpr LinearTraits kTraits{.role = LinearRole::kPixelInput};
  const std::int64_t n_out = shape.dim(0);
  const std::int64_t n_in = shape.numel() / n_out;
  LinearKey key{.name = full(weight),
                .part = {},
                .n_out = n_out,
                .n_in = n_in,
                .matrices = {full(weight)},
                .n_rows = {n_out},
                .biases = {}};
  if (!bias.empty()) key.biases.push_back(full(bias));
  if (auto ready = stored(key, kTraits)) return ready;
  LinearSpec spec;
  spec.name = full(weight);
  WeightEntry entry = weights_.get(spec.name, shape);
  count(entry);
  spec.format = format_of(key, kTraits);
  if (!spec.format) report(entry);
  entry.view = entry.view.reshape({n_out, n_in});
  spec.add(std::move(entry));
  if (!bias.empty()) {
    spec.parts.back().bias = weights_.get(full(bias), {n_out});
    count(spec.parts.back().bias);
  }
  return prepare(key, kTraits, spec);
}

std::unique_ptr<EmbeddingWeight> Binder::embedding(std::string_view name, std::int64_t n_rows,
                                                   std::int64_t width) {
  const WeightEntry entry = weights_.get(full(name), {n_rows, width});
  count(entry);
  count_bytes(entry);
  report(entry);
  sizes_.embeddings.insert(full(name));
  return backend_.prepare_embedding(entry);
}

void Binder::equalizable(EqualizationGroup group) {
  std::erase_if(group.writers, [&](const auto& writer) { return !has(writer.name); });
  for (auto& writer : group.writers) writer.name = weights_.published_name(full(writer.name));
  for (std::string& reader : group.readers) reader = weights_.published_name(full(reader));
  sizes_.equalization_groups.push_back(std::move(group));
}

Tensor Binder::host_tensor(std::string_view name, const Shape& shape) {
  const WeightEntry entry = weights_.get(full(name), shape);
  count(entry);
  sizes_.part(part_).owned_bytes += entry.view.numel() * 4;
  report(entry);
  return to_f32(entry.view);
}

void check_all_used(const WeightProvider& weights) {
  std::vector<std::string> left = weights.unused();
  std::erase_if(left, [](const std::string& name) { return is_buffer_name(name); });
  if (left.empty()) return;
  std::string list;
  for (std::size_t i = 0; i < left.size() && i < 8; ++i) list.append(i > 0 ? ", " : "").append(left[i]);
  if (left.size() > 8) list += fmt::format(" and {} more", left.size() - 8);
  fail(ErrorCode::kInvalidFile, "the checkpoint has tensors that no part of the model takes: {}", list);
}

}  // namespace triptych
