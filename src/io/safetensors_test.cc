#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "io/mapped_file.h"
#include "io/test_files.h"
#include "support/shared_dir.h"

namespace triptych {
namespace {

using test::error_of;
using test::floats;
using test::little_endian;
using test::safetensors;
using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string tensor_json(const std::string& dtype, const std::string& shape, const std::string& offsets,
                        const std::string& name = "w") {
  return "\"" + name + "\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}";
}

WeightTable read(const std::string& bytes) {
  return read_safetensors(test::as_bytes(bytes), nullptr, "bad.safetensors");
}

std::string refusal(const std::string& bytes, ErrorCode code = ErrorCode::kInvalidFile) {
  const std::string error = error_of([&] { read(bytes); }, code);
  EXPECT_EQ(error.rfind("bad.safetensors: ", 0), 0u) << error;
  return error;
}

TEST(Safetensors, ReadsTensorsInFileOrder) {
  const std::string bytes = safetensors("{" + tensor_json("\"F32\"", "[1,2]", "[8,16]", "a") + "," +
                                            tensor_json("\"I64\"", "[1]", "[0,8]", "z") +
                                            ",\"__metadata__\":{\"format\":\"pt\"}}   ",
                                        little_endian(std::int64_t{-5}) + floats({1.5f, -2}));
  const TempDir dir;
  std::map<std::string, std::string> metadata;
  const WeightTable table = read_safetensors(dir.write("x.safetensors", bytes), metadata);
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table.begin()->name, "z");
  EXPECT_EQ(table.at("z").view.as<std::int64_t>()[0], -5);
  EXPECT_EQ(table.at("a").view.shape(), (Shape{1, 2}));
  EXPECT_EQ(table.at("a").view.cf32()[1], -2);
  EXPECT_THAT(table.at("a").file, HasSubstr("x.safetensors"));
  EXPECT_THAT(metadata, ElementsAre(Pair("format", "pt")));
}

// Case 13: crafted headers.
TEST(SafetensorsCase13, HeaderLength) {
  const std::string body = "{}" + std::string(40, ' ');
  const std::uint64_t size = 8 + body.size();
  EXPECT_THAT(refusal(little_endian(std::uint64_t{0}) + body), HasSubstr("header"));
  for (const std::uint64_t length :
       {std::numeric_limits<std::uint64_t>::max(), std::uint64_t{1} << 63, size, size - 7})
    EXPECT_THAT(refusal(little_endian(length) + body), HasSubstr(std::to_string(length)));
  EXPECT_EQ(read(little_endian(size - 8) + body).size(), 0u);
  EXPECT_THAT(refusal(std::string(7, '\0')), HasSubstr("7 bytes"));
  EXPECT_THAT(refusal(""), HasSubstr("0 bytes"));
  // Longer than any real header: refused before it is read.
  std::string huge = little_endian(kMaxSafetensorsHeader_bytes + 1);
  EXPECT_THAT(error_of([&] {
                parse_safetensors_header(test::as_bytes(huge), std::uint64_t{1} << 40, "bad.safetensors");
              }),
              HasSubstr("at most"));
}

TEST(SafetensorsCase13, DataOffsets) {
  const std::string data = floats({1, 2});
  for (const char* offsets : {"[0]",
                              "[]",
                              "[0,4,8]",
                              "[-1,7]",
                              "[0,-8]",
                              "[8,0]",
                              "[0,12]",
                              "[4,12]",
                              "[0.5,8.5]",
                              "[0,8.0]",
                              "[0,1e30]",
                              "[1e30,1e30]",
                              "[0,18446744073709551616]",
                              "[18446744073709551608,0]",
                              "[9223372036854775800,9223372036854775808]",
                              "[\"0\",\"8\"]",
                              "null",
                              "8",
                              "{}",
                              "[[0],[8]]",
                              "[true,8]"}) {
    const std::string error = refusal(safetensors("{" + tensor_json("\"F32\"", "[2]", offsets) + "}", data));
    EXPECT_THAT(error, HasSubstr("tensor \"w\"")) << offsets;
  }
  EXPECT_THAT(refusal(safetensors("{" + tensor_json("\"F32\"", "[3]", "[0,12]") + "}", data)),
              HasSubstr("[0, 12]"));
}

TEST(SafetensorsCase13, Shape) {
  const std::string data = floats({1, 2});
  for (const char* shape :
       {"[4294967296,4294967296]", "[9223372036854775807,2]", "[4611686018427387904,4,0]", "[-2]", "[3]",
        "[1]", "[2.5]", "[2.0]", "[1e30]", "null", "2", "\"2\"", "[1,1,1,1,1,1,1,1,2]", "[[2]]",
        "[9223372036854775807]", "[2305843009213693954]", "[18446744073709551615]"}) {
    const std::string error = refusal(safetensors("{" + tensor_json("\"F32\"", shape, "[0,8]") + "}", data));
    EXPECT_THAT(error, HasSubstr("tensor \"w\"")) << shape;
  }
  // 3 * 4 bytes in a range of 8, 2 * 8 bytes likewise; a range that is no multiple of the element.
  refusal(safetensors("{" + tensor_json("\"F64\"", "[2]", "[0,8]") + "}", data));
  refusal(safetensors("{" + tensor_json("\"F64\"", "[0]", "[0,7]") + "}", data.substr(0, 7)));
}

TEST(SafetensorsCase13, Fields) {
  const std::string data = floats({1, 2});
  EXPECT_THAT(
      refusal(safetensors("{" + tensor_json("\"F33\"", "[2]", "[0,8]") + "}", data), ErrorCode::kUnsupported),
      HasSubstr("F33"));
  refusal(safetensors("{" + tensor_json("\"f32\"", "[2]", "[0,8]") + "}", data), ErrorCode::kUnsupported);
  refusal(safetensors("{" + tensor_json("32", "[2]", "[0,8]") + "}", data));
  for (const char* header : {"[]", "1", "null", "\"x\"", "", "   ", "{", "{}}", "{]", "{\"w\":1}",
                             "{\"w\":null}", "{\"w\":{}}", "\xEF\xBB\xBF{}", " {}"})
    refusal(safetensors(header, ""));
  refusal(safetensors("{\"w\xff\":{}}"));  // not UTF-8
  const std::string empty = tensor_json("\"F32\"", "[0]", "[0,0]");
  EXPECT_THAT(refusal(safetensors("{" + empty + "," + empty + "}")), HasSubstr("twice"));
  for (const char* field : {"dtype", "shape", "data_offsets"}) {
    Json header = Json::parse("{" + tensor_json("\"F32\"", "[2]", "[0,8]") + "}");
    header["w"].erase(field);
    EXPECT_THAT(refusal(safetensors(header.dump(), data)), HasSubstr(field));
  }
}

TEST(SafetensorsCase13, Metadata) {
  for (const char* bad :
       {"1", "null", "[]", "\"x\"", "{\"a\":1}", "{\"a\":null}", "{\"a\":{}}", "{\"a\":[\"b\"]}"})
    EXPECT_THAT(refusal(safetensors("{\"__metadata__\":" + std::string(bad) + "}")),
                HasSubstr("__metadata__"));
  EXPECT_TRUE(read(safetensors("{\"__metadata__\":{}}")).empty());
}

TEST(SafetensorsCase13, EveryByteBelongsToOneTensor) {
  const std::string data = floats({1, 2, 3, 4});
  const auto two = [&](const char* a, const char* b, const char* shape = "[2]") {
    return safetensors(
        "{" + tensor_json("\"F32\"", "[2]", a, "a") + "," + tensor_json("\"F32\"", shape, b, "b") + "}",
        data);
  };
  EXPECT_EQ(read(two("[8,16]", "[0,8]")).size(), 2u);
  EXPECT_THAT(refusal(two("[0,8]", "[4,12]")), HasSubstr("overlaps"));
  EXPECT_THAT(refusal(two("[0,8]", "[0,8]")), HasSubstr("overlaps"));
  EXPECT_THAT(refusal(two("[0,8]", "[12,16]", "[1]")), HasSubstr("gap"));
  EXPECT_THAT(refusal(two("[0,8]", "[8,12]", "[1]")), HasSubstr("4 bytes at the end"));
  EXPECT_THAT(refusal(safetensors("{}", "x")), HasSubstr("1 bytes at the end"));
}

TEST(SafetensorsCase13, EmptyAndScalarTensorsLoad) {
  const WeightTable table = read(safetensors("{" + tensor_json("\"F32\"", "[0]", "[0,0]", "empty") + "," +
                                                 tensor_json("\"F32\"", "[3,0,2]", "[4,4]", "empty2") + "," +
                                                 tensor_json("\"F32\"", "[]", "[0,4]", "scalar") + "}",
                                             floats({7})));
  EXPECT_EQ(table.at("empty").view.numel(), 0);
  EXPECT_EQ(table.at("empty2").view.shape(), (Shape{3, 0, 2}));
  EXPECT_EQ(table.at("scalar").view.rank(), 0);
  EXPECT_EQ(*table.at("scalar").view.cf32(), 7);
}

// A file of 200 bytes must not make the reader take memory.
TEST(SafetensorsCase13, SmallFilesTakeLittleMemory) {
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  for (const char* shape : {"[4611686018427387903]", "[1000000000000]", "[2147483647,2147483647]"})
    refusal(safetensors("{" + tensor_json("\"U8\"", shape, "[0,4611686018427387903]") + "}", "12345678"));
  for (const std::uint64_t length : {std::uint64_t{1} << 62, std::uint64_t{1} << 33, std::uint64_t{1} << 24})
    refusal(little_endian(length) + "{}");
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 * 1024);
}

TEST(Safetensors, LongAndStrangeNamesAreShownShort) {
  const std::string error = refusal(safetensors("{\"" + std::string(5000, 'n') + "\\n\":{}}"));
  EXPECT_LT(error.size(), 300u);
  EXPECT_THAT(refusal(safetensors("{\"a\\nb\\u001b[31m\":{}}")), HasSubstr(R"("a\nb\u001b[31m")"));
}

TEST(Safetensors, MisalignedTensorsAreCopied) {
  // 8 + header is odd here, and the second tensor begins after a single byte.
  std::string header = "{" + tensor_json("\"U8\"", "[1]", "[0,1]", "a") + "," +
                       tensor_json("\"F32\"", "[2]", "[1,9]", "b") + "}";
  for (int pad = 0; pad < 4; ++pad) {
    const std::string bytes = safetensors(header, "x" + floats({3, 4}));
    const WeightTable table = read(bytes);
    const TensorView view = table.at("b").view;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data()) % 4, 0u);
    EXPECT_EQ(view.cf32()[1], 4);
    header += " ";
  }
}

TEST(Safetensors, ViewsOutliveTheTable) {
  const TempDir dir;
  std::shared_ptr<const void> owner;
  TensorView view;
  {
    const WeightTable table = read_safetensors(dir.write("a", test::one_tensor("w", 5)));
    view = table.at("w").view;
    owner = table.at("w").owner;
  }
  EXPECT_EQ(view.cf32()[0], 5);
}

TEST(SafetensorsWriter, RoundTrip) {
  const TempDir dir;
  Tensor a(DType::kF32, {3, 4});
  for (int i = 0; i < 12; ++i) a.f32()[i] = static_cast<float>(i) / 3;
  const Tensor b = Tensor::zeros(DType::kI8, {5});
  const Tensor c = Tensor::zeros(DType::kF64, {2});
  const Tensor empty(DType::kBF16, {0, 7});
  const Tensor scalar = Tensor::zeros(DType::kF16, {});
  const std::map<std::string, std::string> metadata{{"format", "pt"}, {"quote\"", "line\n"}};
  const std::filesystem::path path = dir / "out.safetensors";
  write_safetensors(
      path,
      {{"b", b}, {"slice", a.view().cols(1, 3)}, {"c\"\u00e9", c}, {"e", empty}, {"s", scalar}, {"a", a}},
      metadata);
  std::map<std::string, std::string> got;
  const WeightTable table = read_safetensors(path, got);
  EXPECT_EQ(got, metadata);
  ASSERT_EQ(table.size(), 6u);
  EXPECT_EQ(std::memcmp(table.at("a").view.cdata(), a.view().cdata(), 48), 0);
  EXPECT_EQ(table.at("slice").view.shape(), (Shape{3, 2}));
  EXPECT_EQ(table.at("slice").view.cf32()[5], a.f32()[10]);
  EXPECT_EQ(table.at("c\"\u00e9").view.dtype(), DType::kF64);
  EXPECT_EQ(table.at("e").view.shape(), (Shape{0, 7}));
  // Larger elements first, data at a multiple of 64: everything is aligned and lies in the file.
  for (const WeightEntry& entry : table)
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(entry.view.data()) % size_bytes(entry.view.dtype()), 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(table.begin()->view.data()) % 64, 0u);
  EXPECT_EQ(table.begin()->name, "c\"\u00e9");
}

TEST(SafetensorsWriter, StreamsAndAppearsOnlyWhenFinished) {
  const TempDir dir;
  const std::filesystem::path path = dir / "model.safetensors";
  {
    SafetensorsWriter writer(path, {{"a", DType::kF32, {2}}, {"b", DType::kF32, {2}}});
    writer.append(Tensor::zeros(DType::kF32, {2}));
    EXPECT_THROW(writer.finish(), Error);  // b is missing
    EXPECT_THROW(writer.append(Tensor::zeros(DType::kF32, {3})), Error);
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  {
    SafetensorsWriter writer(path, {{"a", DType::kF32, {2}}});
    writer.append(Tensor::zeros(DType::kF32, {2}));
    EXPECT_THROW(writer.append(Tensor::zeros(DType::kF32, {2})), Error);
    writer.finish();
    EXPECT_THROW(writer.finish(), Error);
  }
  EXPECT_EQ(read_safetensors(path).size(), 1u);
  EXPECT_THROW(SafetensorsWriter(path, {{"a", DType::kF32, {2}}, {"a", DType::kF32, {2}}}), Error);
  EXPECT_THROW(SafetensorsWriter(path, {{"__metadata__", DType::kF32, {2}}}), Error);
  EXPECT_THROW(SafetensorsWriter(path, {{"\xff", DType::kF32, {2}}}), Error);
  EXPECT_THROW(SafetensorsWriter(dir / "absent/x", {}), Error);
  EXPECT_EQ(read_safetensors(path).size(), 1u);  // the failed ones left it alone
  write_safetensors(path, {});
  EXPECT_EQ(read_safetensors(path).size(), 0u);
}

// A published checkpoint, written by the reference implementation.
TEST(Safetensors, ReadsTheReferenceWriter) {
  TRIPTYCH_SHARED_OR_SKIP(path, "golden/models/qwen_vl/model.safetensors");
  const WeightTable table = read_safetensors(path);
  EXPECT_GT(table.size(), 50u);
  EXPECT_EQ(table.at("transformer.wte.weight").view.shape(), (Shape{704, 128}));
  EXPECT_EQ(table.begin()->name, "transformer.wte.weight");
}

}  // namespace
}  // namespace triptych
