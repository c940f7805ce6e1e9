// Part names, and what a recorder counts against the cost model.
#include "benchmark/bench_parts.h"

#include <gtest/gtest.h>

#include "benchmark/published_shapes.h"
#include "benchmark/testing/small_llava.h"
#include "engine/engine.h"

namespace triptych {
namespace {

TEST(BenchParts, NamesBeginBehindTheLayer) {
  EXPECT_EQ(part_name("language_model.model.layers.13.self_attn.q_proj+k_proj+v_proj"),
            "self_attn.q_proj+k_proj+v_proj");
  EXPECT_EQ(part_name("visual.transformer.resblocks.0.mlp.c_fc"), "mlp.c_fc");
  EXPECT_EQ(part_name("vision_tower.vision_model.embeddings.patch_embedding.weight"),
            "embeddings.patch_embedding");
  EXPECT_EQ(part_name("visual.merger.mlp.2"), "mlp.2");
  EXPECT_EQ(part_name("language_model.lm_head"), "language_model.lm_head");
  EXPECT_EQ(part_name("lm_head"), "lm_head");
  EXPECT_EQ(part_name(""), "");
  EXPECT_EQ(part_name("weight"), "weight");
}

const PartTiming* find(const std::vector<PartTiming>& parts, std::string_view stage, std::string_view name) {
  for (const PartTiming& part : parts)
    if (part.stage == stage && part.name == name) return &part;
  return nullptr;
}

TEST(BenchParts, ProductsOfAPromptAndOfDecodedTokens) {
  const auto model = LoadedModel::with_random_weights(small_llava_config(), DType::kF32, {.n_threads = 1});
  Engine engine(*model, {.max_context_tokens = 64, .max_sequences = 1});
  PartRecorder recorder(model->model().part_sizes(), model->backend());
  engine.set_observer(&recorder);
  PreparedRequest request;
  for (std::int32_t i = 0; i < 20; ++i) {
    request.layout.input_ids.push_back(i);
    request.layout.positions.push_back(i);
  }
  request.layout.next_position = 20;
  SamplingParams params;
  params.max_tokens = 4;
  params.ignore_eos = true;
  int n = 0;
  engine.submit(std::move(request), params, [&](const TokenEvent&) {
    recorder.begin_decode();
    ++n;
    return true;
  });
  while (engine.has_work()) engine.step();
  ASSERT_EQ(n, 4);
  const std::vector<PartTiming> parts = recorder.parts(1, 3);

  // 2 layers of width 64, 4 heads of 16, F = 176, V = 320.
  const PartTiming* qkv = find(parts, "prefill", "self_attn.q_proj+k_proj+v_proj");
  ASSERT_NE(qkv, nullptr);
  EXPECT_EQ(qkv->count, 2);
  EXPECT_DOUBLE_EQ(qkv->cost.flops, 2.0 * 2 * 20 * 64 * 192);
  EXPECT_DOUBLE_EQ(qkv->cost.bytes, 2 * (4.0 * 64 * 192 + 4.0 * 20 * (64 + 192)));
  EXPECT_GT(qkv->ms, 0);
  const PartTiming* head = find(parts, "prefill", "lm_head");
  ASSERT_NE(head, nullptr);
  EXPECT_DOUBLE_EQ(head->cost.flops, 2.0 * 64 * 320);  // of the last token only
  const PartTiming* attention = find(parts, "prefill", "attention");
  ASSERT_NE(attention, nullptr);
  EXPECT_DOUBLE_EQ(attention->cost.flops, 2 * 4.0 * (20.0 * 21 / 2) * 64);
  EXPECT_EQ(attention->count, 2);

  // Three steps over 21, 22 and 23 tokens; means.
  const PartTiming* down = find(parts, "decode", "mlp.down_proj");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->count, 2);
  EXPECT_DOUBLE_EQ(down->cost.flops, 2.0 * 2 * 64 * 176);
  const PartTiming* cached = find(parts, "decode", "attention");
  ASSERT_NE(cached, nullptr);
  EXPECT_DOUBLE_EQ(cached->cost.flops, 2 * 4.0 * 22 * 64);
  EXPECT_DOUBLE_EQ(cached->cost.bytes, 2 * (22.0 * 2 * 4 * 16 * 2 + 8.0 * 64));  // fp16 cache
  EXPECT_NE(find(parts, "decode", "norm"), nullptr);
  EXPECT_EQ(find(parts, "tower", "attention"), nullptr);
}

}  // namespace
}  // namespace triptych
