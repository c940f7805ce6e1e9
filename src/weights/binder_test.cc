// Binding: what a provider stores, what is asked of it, and under which name it is known.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "tensor/quant_codec.h"
#include "weights/packed_weights.h"

namespace triptych {
namespace {

constexpr std::int64_t kN = 64, kK = 96;

// As a reader of another format would be: its matrices are codes.
class CodedWeights final : public WeightProvider {
 public:
  explicit CodedWeights(QuantFormat format) : format_(format) {}
  void rename(const std::function<std::string(std::string_view)>&) override {}
  bool has(std::string_view) const override { return true; }
  WeightEntry get(std::string_view name, const Shape& shape) override { return floats_.get(name, shape); }
  LinearSource matrix(std::string_view name, const Shape& shape) override {
    return QuantizedSource{
        .name = std::string(name),
        .matrix = std::make_shared<QuantizedMatrix>(quantize(get(name, shape).view, format_))};
  }
  std::vector<std::string> unused() const override { return {}; }

 private:
  RandomWeights floats_{DType::kF32, 1};
  QuantFormat format_;
};

class Sink final : public WeightSink {
 public:
  void linear(const StoredLinear& linear, const LinearWeight&) override { linears.push_back(linear); }
  void tensor(const std::string& name, const WeightEntry&) override { tensors.push_back(name); }
  std::vector<StoredLinear> linears;
  std::vector<std::string> tensors;
};

const Binder::StackPart kGateUp[] = {{"gate", kN, Bias::kRequired}, {"up", kN}};

TEST(Binder, CodesOfAProviderAreUsedAsTheyAre) {
  const auto backend = make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
  const QuantFormat format = QuantFormat::parse("int4:g32:asym");
  RandomWeights floats(DType::kF32, 1);
  CodedWeights codes(format);
  PartSizes sizes, coded_sizes;
  Binder loading(floats, *backend, sizes, "language",
                 {.quantize_to = [&](const LinearInfo&) { return format; }});
  Binder stored(codes, *backend, coded_sizes, "language");
  const auto expected = loading.scope("mlp").linear_stack(kGateUp, kK);
  const auto made = stored.scope("mlp").linear_stack(kGateUp, kK);
  const Tensor x = Tensor::copy_of(floats.get("x", {3, kK}).view);
  Tensor y(DType::kF32, {3, 2 * kN}), z(DType::kF32, {3, 2 * kN});
  TensorView to_y = y.view(), to_z = z.view();
  backend->linear(*expected, x.view(), {}, to_y);
  backend->linear(*made, x.view(), {}, to_z);
  EXPECT_EQ(std::memcmp(y.f32(), z.f32(), y.view().size_bytes()), 0);
  EXPECT_EQ(coded_sizes.part("language").n_parameters, 2 * kN * kK + kN);
  EXPECT_EQ(coded_sizes.part("language").n_parameters, sizes.part("language").n_parameters);
}

TEST(Binder, CodesAreWrittenInTheFormatTheyHave) {
  const auto backend = make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
  CodedWeights codes(QuantFormat::parse("int8:g32"));
  PartSizes sizes;
  Sink sink;
  Binder binder(codes, *backend, sizes, "vision", {.sink = &sink});
  const auto made = binder.scope("mlp").linear_stack(kGateUp, kK);
  ASSERT_EQ(sink.linears.size(), 1U);
  EXPECT_EQ(sink.linears[0].format, "int8:g32");
  EXPECT_EQ(sink.linears[0].id, LinearId{"mlp.gate.weight"});
  EXPECT_EQ(sink.linears[0].matrices, (std::vector<std::string>{"mlp.gate.weight", "mlp.up.weight"}));
  EXPECT_TRUE(sink.tensors.empty());
}

// A policy sees what the family states; parts of names mean nothing.
TEST(Binder, ThePolicyIsAskedWithIdRolePartAndShape) {
  const auto backend = make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
  RandomWeights weights(DType::kF32, 1);
  PartSizes sizes;
  std::vector<std::string> asked;
  Binder binder(
      weights, *backend, sizes, "projector", {.quantize_to = [&](const LinearInfo& linear) {
        asked.push_back(fmt::format("{} {} {} {}x{}{}", linear.id.text(),
                                    static_cast<int>(linear.traits.role), linear.model_part, linear.n_out,
                                    linear.n_in, linear.traits.int8_inputs ? " int8" : ""));
        return std::optional<QuantFormat>();
      }});
  const auto a = binder.scope("s").linear("a", 8, 16, Bias::kNone);
  const auto b = binder.linear("b", 8, 16, Bias::kNone, {.role = LinearRole::kHead});
  const auto c = binder.patch_embedding("c.weight", {4, 3, 2, 2}, "");
  const auto d = binder.linear_rows("d", "e", 12, 16, 4, 8);
  const auto f = binder.linear_transposed("f", 8, 16);
  const auto g =
      binder.linear("g", 8, 16, Bias::kNone, {.role = LinearRole::kPixelInput, .int8_inputs = true});
  EXPECT_EQ(asked, (std::vector<std::string>{"s.a.weight 0 projector 8x16", "b.weight 2 projector 8x16",
                                             "c.weight 1 projector 4x12", "d[4:8] 0 projector 4x16",
                                             "f^T 0 projector 8x16", "g.weight 1 projector 8x16 int8"}));
  ASSERT_EQ(sizes.linears.size(), 6U);
  EXPECT_EQ(sizes.linears[1].traits.role, LinearRole::kHead);
  EXPECT_EQ(sizes.linears[3].id, (LinearId{"d", "[4:8]"}));
}

// The same linear has the same id in the checkpoint and in what was converted from it, whatever a family
// renames.
TEST(Binder, IdsAreThePublishedNames) {
  const auto backend = make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
  const auto rule = [](std::string_view name) { return "lm." + std::string(name); };
  auto w = std::make_shared<Tensor>(DType::kF32, Shape{kN, kK});
  std::fill_n(w->f32(), kN * kK, 0.5F);
  WeightTable table;
  table.add({"q.weight", w->view(), w, "test"});
  TableWeights published(table);
  published.rename(rule);
  PartSizes sizes;
  const BindOptions options{
      .quantize_to = WeightFormats{.language = QuantFormat::parse("int8"), .vision = {}, .lm_head = {}}};
  const auto made =
      Binder(published, *backend, sizes, "language", options).scope("lm").linear("q", kN, kK, Bias::kNone);
  EXPECT_EQ(sizes.linears.at(0).id, LinearId{"q.weight"});

  PackedIndex index;
  index.linears.push_back({.id = {"q.weight"},
                           .format = "int8:channel",
                           .n_out = kN,
                           .n_in = kK,
                           .matrices = {"q.weight"},
                           .n_rows = {kN},
                           .biases = {},
                           .activation_quant = {},
                           .arrays = {}});
  WeightTable packed_table;
  for (const PackedArray& array : made->packed()) {
    index.linears[0].arrays.push_back(array.name);
    packed_table.add({index.linears[0].tensor_name(array.name), array.view, array.owner, "test"});
  }
  PackedWeights packed(packed_table, index);
  packed.rename(rule);
  PartSizes packed_sizes;
  const auto again =
      Binder(packed, *backend, packed_sizes, "language").scope("lm").linear("q", kN, kK, Bias::kNone);
  EXPECT_EQ(packed_sizes.linears.at(0).id, LinearId{"q.weight"});
}

}  // namespace
}  // namespace triptych
