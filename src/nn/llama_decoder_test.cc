// The decoder against its formulas, computed in double precision for one token after another.
#include "nn/llama_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "weights/weight_providers.h"

namespace triptych {
namespace {

using Row = std::vector<double>;
using Added = LlamaDecoder::AddedRows;

LlamaConfig small_config(bool qk_norm) {
  LlamaConfig c;
  c.vocab_size = 30;
  c.hidden_size = 24;
  c.intermediate_size = 40;
  c.n_layers = 3;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = 8;
  c.max_position_embeddings = 64;
  c.qkv_bias = !qk_norm;
  c.qk_norm = qk_norm;
  c.rope.rotary_dim = 8;
  return c;
}

// One sequence through the layers, every step written out.
class ScalarDecoder {
 public:
  explicit ScalarDecoder(const LlamaConfig& config) : c_(config) {}

  std::vector<Row> logits(const std::vector<std::int32_t>& ids, std::span<const Added> added) {
    std::vector<Row> h;
    const auto table = weight("model.embed_tokens", c_.vocab_size, c_.hidden_size);
    for (const std::int32_t id : ids) h.push_back(table[static_cast<std::size_t>(id)]);
    for (int layer = 0; layer < c_.n_layers; ++layer) {
      run_layer(layer, h);
      for (const Added& a : added)
        if (a.after_layer == layer)
          for (std::size_t i = 0; i < a.at_rows.size(); ++i)
            for (std::size_t d = 0; d < h[0].size(); ++d)
              h[static_cast<std::size_t>(a.at_rows[i])][d] +=
                  static_cast<double>(a.rows.row(static_cast<std::int64_t>(i)).cf32()[d]);
    }
    std::vector<Row> out;
    for (const Row& x : h) out.push_back(linear("lm_head", c_.vocab_size, rms_norm("model.norm", x), false));
    return out;
  }

 private:
  std::vector<Row> weight(const std::string& name, std::int64_t n, std::int64_t k) {
    const WeightEntry entry = weights_.get(name + ".weight", {n, k});
    std::vector<Row> out;
    for (std::int64_t i = 0; i < n; ++i) {
      const float* row = entry.view.row(i).cf32();
      out.emplace_back(row, row + k);
    }
    return out;
  }
  Row vector(const std::string& name, std::int64_t n) {
    const WeightEntry entry = weights_.get(name, {n});
    return {entry.view.cf32(), entry.view.cf32() + n};
  }
  Row linear(const std::string& name, std::int64_t n, const Row& x, bool bias) {
    Row y = bias ? vector(name + ".bias", n) : Row(static_cast<std::size_t>(n));
    const auto w = weight(name, n, static_cast<std::int64_t>(x.size()));
    for (std::size_t i = 0; i < y.size(); ++i)
      for (std::size_t k = 0; k < x.size(); ++k) y[i] += w[i][k] * x[k];
    return y;
  }
  Row rms_norm(const std::string& name, const Row& x) {
    double sum = 0;
    for (const double v : x) sum += v * v;
    Row y = vector(name + ".weight", static_cast<std::int64_t>(x.size()));
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] *= x[i] / std::sqrt(sum / static_cast<double>(x.size()) + static_cast<double>(c_.rms_norm_eps));
    return y;
  }
  // Head `head` of a projection, normed and turned.
  Row head_of(const Row& x, int head, const std::string& norm, std::size_t position, bool turn) {
    const auto dh = static_cast<std::size_t>(c_.head_dim);
    const auto first = x.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(head) * dh);
    Row y(first, first + static_cast<std::ptrdiff_t>(dh));
    if (!turn) return y;
    if (c_.qk_norm) y = rms_norm(norm, y);
    for (std::size_t d = 0; d < dh / 2; ++d) {
      const double angle = static_cast<double>(position) *
                           std::pow(c_.rope.theta, -2.0 * static_cast<double>(d) / static_cast<double>(dh));
      const double a = y[d];
      const double b = y[d + dh / 2];
      y[d] = a * std::cos(angle) - b * std::sin(angle);
      y[d + dh / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
    return y;
  }
  void run_layer(int layer, std::vector<Row>& h) {
    const std::string name = "model.layers." + std::to_string(layer);
    const std::string attn = name + ".self_attn.";
    const std::int64_t dh = c_.head_dim;
    std::vector<Row> q, k, v;
    for (const Row& row : h) {
      const Row x = rms_norm(name + ".input_layernorm", row);
      q.push_back(linear(attn + "q_proj", c_.n_heads * dh, x, c_.qkv_bias));
      k.push_back(linear(attn + "k_proj", c_.n_kv_heads * dh, x, c_.qkv_bias));
      v.push_back(linear(attn + "v_proj", c_.n_kv_heads * dh, x, c_.qkv_bias));
    }
    for (std::size_t t = 0; t < h.size(); ++t) {
      Row heads;
      for (int head = 0; head < c_.n_heads; ++head) {
        const int kv_head = head / (c_.n_heads / c_.n_kv_heads);
        const Row query = head_of(q[t], head, attn + "q_norm", t, true);
        Row scores;
        for (std::size_t s = 0; s <= t; ++s) {
          const Row key = head_of(k[s], kv_head, attn + "k_norm", s, true);
          double dot = 0;
          for (std::size_t d = 0; d < key.size(); ++d) dot += query[d] * key[d];
          scores.push_back(std::exp(dot / std::sqrt(static_cast<double>(dh))));
        }
        double sum = 0;
        for (const double score : scores) sum += score;
        Row out(static_cast<std::size_t>(dh));
        for (std::size_t s = 0; s <= t; ++s) {
          const Row value = head_of(v[s], kv_head, "", s, false);
          for (std::size_t d = 0; d < out.size(); ++d) out[d] += scores[s] / sum * value[d];
        }
        heads.insert(heads.end(), out.begin(), out.end());
      }
      add(h[t], linear(attn + "o_proj", c_.hidden_size, heads, false));
    }
    for (Row& row : h) {
      const Row x = rms_norm(name + ".post_attention_layernorm", row);
      Row gate = linear(name + ".mlp.gate_proj", c_.intermediate_size, x, false);
      const Row up = linear(name + ".mlp.up_proj", c_.intermediate_size, x, false);
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      add(row, linear(name + ".mlp.down_proj", c_.hidden_size, gate, false));
    }
  }
  static void add(Row& a, const Row& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  }

  LlamaConfig c_;
  RandomWeights weights_{DType::kF32, 7};
};

// Two sequences in one batch, each with a page of its own.
class LlamaDecoderTest : public testing::TestWithParam<bool> {
 protected:
  LlamaDecoderTest() {
    RandomWeights weights(DType::kF32, 7);
    decoder_ = LlamaDecoder::bind(config_, Binder(weights, *backend_, sizes_, "language").scope("model"),
                                  "lm_head", "model");
    cache_ = backend_->make_kv_cache({.n_layers = config_.n_layers,
                                      .n_kv_heads = config_.n_kv_heads,
                                      .head_dim = config_.head_dim,
                                      .page_tokens = 16,
                                      .n_pages = 2});
    std::int32_t row = 0;
    for (std::size_t s = 0; s < 2; ++s) {
      const auto n = static_cast<std::int32_t>(prompts_[s].size());
      sequences_.push_back(
          {.first_row = row, .n_rows = n, .n_context = n, .pages = std::span(pages_).subspan(s, 1)});
      for (std::int32_t t = 0; t < n; ++t) {
        ids_.push_back(prompts_[s][static_cast<std::size_t>(t)]);
        positions_.push_back(t);
        lengths_.push_back({.n_tokens = t + 1, .n_prompt = n});
        slots_.push_back(pages_[s] * 16 + t);
        rows_.push_back(row++);
      }
    }
  }
  LlamaDecoder::Step step(std::span<const std::int32_t> logit_rows, std::span<const Added> added = {}) {
    return {positions_, lengths_, sequences_, slots_, cache_.get(), logit_rows, added};
  }
  std::vector<float> run(const LlamaDecoder::Step& inputs, const std::vector<int>& cuts = {}) {
    Arena arena;
    ExecContext cx(*backend_, arena);
    TensorView h = decoder_.embed(cx, ids_);
    TensorView y;
    if (cuts.empty()) {
      y = decoder_.forward(cx, h, inputs);
    } else {
      int first = 0;
      for (const int end : cuts) {
        h = decoder_.forward(cx, h, inputs, {first, end});
        first = end;
      }
      y = decoder_.logits(cx, h);
    }
    return {y.cf32(), y.cf32() + y.numel()};
  }

  LlamaConfig config_ = small_config(GetParam());
  std::unique_ptr<Backend> backend_ = make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt});
  PartSizes sizes_;
  LlamaDecoder decoder_;
  std::unique_ptr<KvCache> cache_;
  const std::vector<std::int32_t> prompts_[2] = {{3, 17, 4, 29, 0}, {8, 8, 21}};
  const std::vector<std::int32_t> pages_ = {1, 0};
  std::vector<RowLengths> lengths_;
  std::vector<KvSequence> sequences_;
  std::vector<std::int32_t> ids_, positions_, slots_, rows_;
};

void expect_near(const std::vector<float>& ours, const std::vector<Row>& reference) {
  std::size_t i = 0;
  for (const Row& row : reference)
    for (const double value : row) {
      ASSERT_LT(i, ours.size());
      ASSERT_NEAR(static_cast<double>(ours[i]), value, 2e-5) << "value " << i;
      ++i;
    }
  EXPECT_EQ(i, ours.size());
}

TEST_P(LlamaDecoderTest, EqualsItsFormulas) {
  std::vector<Row> expected;
  for (const auto& prompt : prompts_)
    for (Row& row : ScalarDecoder(config_).logits(prompt, {})) expected.push_back(std::move(row));
  expect_near(run(step(rows_)), expected);
}

// Rows are added between layers, and behind the last one, where otherwise only the logit rows are computed.
TEST_P(LlamaDecoderTest, RowsAreAddedBehindTheirLayer) {
  Tensor rows(DType::kF32, {2, config_.hidden_size});
  for (std::int64_t i = 0; i < rows.view().numel(); ++i)
    rows.f32()[i] = static_cast<float>(i % 7) * 0.25F - 0.7F;
  const std::int32_t first[] = {1, 3};
  const std::int32_t last[] = {4, 2};
  for (const bool at_the_end : {false, true}) {
    std::vector<Added> added = {{.after_layer = 0, .rows = rows.view(), .at_rows = first}};
    if (at_the_end) added.push_back({.after_layer = 2, .rows = rows.view(), .at_rows = last});
    const std::vector<Row> expected = ScalarDecoder(config_).logits(prompts_[0], added);
    const std::vector<float> all = run(step(rows_, added));
    expect_near({all.begin(), all.begin() + 5 * config_.vocab_size}, expected);
    const std::int32_t one[] = {4};
    expect_near(run(step(one, added)), {expected[4]});
    EXPECT_EQ(run(step(one, added), {1, 3}), run(step(one, added)));
  }
}

TEST_P(LlamaDecoderTest, RangesOfLayersGiveTheSameBits) {
  const std::vector<std::int32_t> last_rows = {4, 7};
  for (const auto& rows : {rows_, last_rows}) {
    const std::vector<float> whole = run(step(rows));
    EXPECT_EQ(run(step(rows), {1, 2, 3}), whole);
    EXPECT_EQ(run(step(rows), {2, 3}), whole);
  }
  EXPECT_THROW(run(step(rows_), {1, 1}), Error) << "an empty range";
  EXPECT_THROW(run(step(rows_), {4}), Error);
}

INSTANTIATE_TEST_SUITE_P(QkNorm, LlamaDecoderTest, testing::Bool(),
                         [](const auto& run) { return run.param ? "normed" : "plain"; });

}  // namespace
}  // namespace triptych
