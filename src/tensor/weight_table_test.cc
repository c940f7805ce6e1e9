#include "tensor/weight_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace triptych {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

WeightTable make(const std::vector<std::string>& names, const std::string& file = "a.safetensors") {
  static float data[4] = {1, 2, 3, 4};
  WeightTable out;
  for (const std::string& name : names) out.add({name, TensorView(data, DType::kF32, {4}), nullptr, file});
  return out;
}

std::vector<std::string> names(const WeightTable& table) {
  std::vector<std::string> out;
  for (const WeightEntry& entry : table) {
    out.push_back(entry.name);
    EXPECT_EQ(table.find(entry.name), &entry);
  }
  EXPECT_EQ(out.size(), table.size());
  return out;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(WeightTable, KeepsFileOrder) {
  WeightTable table = make({"z", "a", "m"});
  EXPECT_THAT(names(table), ElementsAre("z", "a", "m"));
  EXPECT_EQ(table.at("a").view.cf32()[1], 2);
  EXPECT_EQ(table.find("x"), nullptr);
  EXPECT_EQ(table.total_bytes(), 48u);
  EXPECT_THAT(error_of([&] { table.at("lm_head.weight"); }), HasSubstr("lm_head.weight"));
}

TEST(WeightTable, AMissingNameIsSaidWithTheNearest) {
  const WeightTable table = make({"model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight",
                                  "model.norm.weight", "lm_head.weight"});
  const std::string why = error_of([&] { table.at("model.layers.2.mlp.up_proj.weight"); });
  EXPECT_THAT(why, HasSubstr("of its 4 tensors the nearest are model.layers.0.mlp.up_proj.weight, "
                             "model.layers.1.mlp.up_proj.weight, "));
  EXPECT_THAT(why, testing::Not(HasSubstr("lm_head")));
  EXPECT_THAT(error_of([] { WeightTable().at("x"); }), HasSubstr("it holds no tensors"));
  EXPECT_THAT(error_of([&] { table.at(std::string(100000, 'x')); }), HasSubstr("of its 4 tensors"));
}

TEST(WeightTable, DoubleNamesAreErrorsThatNameBothFiles) {
  WeightTable table = make({"w"});
  const std::string error = error_of([&] { table.add({"w", {}, nullptr, "b.safetensors"}); });
  EXPECT_THAT(error, HasSubstr("a.safetensors"));
  EXPECT_THAT(error, HasSubstr("b.safetensors"));
  EXPECT_NE(error_of([&] { table.merge(make({"v", "w"})); }), "no error");
  EXPECT_THAT(names(table), ElementsAre("w"));  // a failed merge adds nothing
}

TEST(WeightTable, RenameEraseMerge) {
  WeightTable table = make({"a", "b", "c"});
  const WeightEntry* b = table.find("b");
  table.rename("a", "x");
  EXPECT_THAT(names(table), ElementsAre("x", "b", "c"));
  EXPECT_THROW(table.rename("a", "y"), Error);
  EXPECT_THROW(table.rename("x", "c"), Error);
  table.rename("x", "x");
  EXPECT_TRUE(table.erase("x"));
  EXPECT_FALSE(table.erase("x"));
  table.merge(make({"d", "e"}));
  EXPECT_THAT(names(table), ElementsAre("b", "c", "d", "e"));
  EXPECT_EQ(table.find("b"), b);
  EXPECT_EQ(table.erase_if([](const WeightEntry& e) { return e.name == "c" || e.name == "e"; }), 2u);
  EXPECT_THAT(names(table), ElementsAre("b", "d"));
  WeightTable moved = std::move(table);
  EXPECT_THAT(names(moved), ElementsAre("b", "d"));
  EXPECT_EQ(moved.find("b"), b);
}

TEST(WeightTable, RenameAll) {
  WeightTable table = make({"model.a", "model.b", "c"});
  table.rename_all(
      [](const std::string& name) { return name.rfind("model.", 0) == 0 ? name.substr(6) : name; });
  EXPECT_THAT(names(table), ElementsAre("a", "b", "c"));
  EXPECT_THAT(error_of([&] { table.rename_all([](const std::string&) { return std::string("same"); }); }),
              HasSubstr("same"));
  EXPECT_THAT(names(table), ElementsAre("a", "b", "c"));
  // Names may trade places.
  table.rename_all([](const std::string& name) { return name == "a" ? "b" : name == "b" ? "a" : name; });
  EXPECT_THAT(names(table), ElementsAre("b", "a", "c"));
}

}  // namespace
}  // namespace triptych
