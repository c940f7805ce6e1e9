#include "io/torch_zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "io/mapped_file.h"
#include "io/pickle_reader.h"
#include "io/safetensors.h"
#include "io/test_files.h"
#include "support/shared_dir.h"
#include "support/source_dir.h"
#include "tensor/convert.h"

namespace triptych {
namespace {

using test::error_of;
using test::floats;
using test::little_endian;
using test::zip;
using testing::ElementsAre;
using testing::HasSubstr;

std::filesystem::path data(const std::string& name) { return test::source_dir() / "tests/data/torch" / name; }

std::vector<double> numbers(const TensorView& view) {
  std::vector<double> out;
  const auto add = [&](auto sample) {
    for (std::int64_t i = 0; i < view.numel(); ++i)
      out.push_back(static_cast<double>(view.as<decltype(sample)>()[i]));
  };
  switch (view.dtype()) {
    case DType::kI8:
      add(std::int8_t{});
      break;
    case DType::kU8:
    case DType::kBool:
      add(std::uint8_t{});
      break;
    case DType::kI16:
      add(std::int16_t{});
      break;
    case DType::kU16:
      add(std::uint16_t{});
      break;
    case DType::kI32:
      add(std::int32_t{});
      break;
    case DType::kI64:
      add(std::int64_t{});
      break;
    default: {
      const Tensor f = to_f32(view);
      out.assign(f.f32(), f.f32() + view.numel());
    }
  }
  return out;
}

// Files written by PyTorch (tests/data/torch/make.py).
TEST(TorchZip, ModuleStateDict) {
  const WeightTable table = read_torch_zip(data("module.bin"));
  std::vector<std::string> names;
  for (const WeightEntry& entry : table) names.push_back(entry.name);
  EXPECT_THAT(names, ElementsAre("0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                                 "1.running_var", "1.num_batches_tracked"));
  EXPECT_EQ(table.at("0.weight").view.shape(), (Shape{2, 3}));
  EXPECT_THAT(numbers(table.at("0.weight").view), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(table.at("1.num_batches_tracked").view.dtype(), DType::kI64);
  EXPECT_EQ(table.at("1.num_batches_tracked").view.rank(), 0);
}

TEST(TorchZip, EveryKindOfTensor) {
  const WeightTable table = read_torch_zip(data("kinds.bin"));
  const auto expect = [&](const char* name, DType dtype, const Shape& shape,
                          const std::vector<double>& values) {
    const TensorView view = table.at(name).view;
    EXPECT_EQ(view.dtype(), dtype) << name;
    EXPECT_EQ(view.shape(), shape) << name;
    EXPECT_EQ(numbers(view), values) << name;
  };
  const std::vector<double> five{0, 1, 2, 3, 4};
  const std::vector<double> four{0, 1, 2, 3};
  expect("f16", DType::kF16, {2, 2}, four);
  expect("bf16", DType::kBF16, {2, 2}, four);
  expect("f64", DType::kF64, {3}, {0, 1, 2});
  expect("i8", DType::kI8, {5}, five);
  expect("u8", DType::kU8, {5}, five);
  expect("i16", DType::kI16, {5}, five);
  expect("i32", DType::kI32, {5}, five);
  expect("i64", DType::kI64, {5}, five);
  expect("bool", DType::kBool, {2}, {1, 0});
  expect("f8e4m3", DType::kF8E4M3, {4}, four);
  expect("f8e5m2", DType::kF8E5M2, {4}, four);
  expect("u16", DType::kU16, {4}, four);
  expect("scalar", DType::kF32, {}, {7});
  expect("empty", DType::kF32, {0, 3}, {});
  expect("rows", DType::kF32, {2, 6}, {6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17});
  expect("slice", DType::kF32, {2, 2}, {8, 9, 14, 15});
  expect("transposed", DType::kF32, {6, 4},
         {0, 6, 12, 18, 1, 7, 13, 19, 2, 8, 14, 20, 3, 9, 15, 21, 4, 10, 16, 22, 5, 11, 17, 23});
  expect("column", DType::kF32, {4}, {2, 8, 14, 20});
  expect("expanded", DType::kF32, {3}, {5, 5, 5});
  expect("parameter", DType::kF32, {2, 2}, four);
  EXPECT_EQ(table.size(), 22u);
  // Tied tensors share their bytes, rows are a view of them, and all lies in the mapping.
  EXPECT_EQ(table.at("base").view.data(), table.at("tied").view.data());
  EXPECT_EQ(table.at("rows").view.data(), table.at("base").view.data() + 24);
}

TEST(TorchZip, NewerPickleProtocolsAndNestedDicts) {
  for (const char* name : {"protocol4.bin", "protocol5.bin"}) {
    const WeightTable table = read_torch_zip(data(name));
    ASSERT_EQ(table.size(), 1u);
    EXPECT_THAT(numbers(table.at("w").view), ElementsAre(0, 1, 2, 3, 4, 5));
  }
  const WeightTable nested = read_torch_zip(data("nested.bin"));
  ASSERT_EQ(nested.size(), 2u);
  EXPECT_THAT(numbers(nested.at("state_dict.b").view), ElementsAre(0, 1, 2));
}

TEST(TorchZip, RefusesCodeAndOldFiles) {
  const std::string error = error_of([] { read_torch_zip(data("evil.bin")); }, ErrorCode::kUnsupported);
  EXPECT_THAT(error, HasSubstr("posix.system"));
  EXPECT_THAT(error, HasSubstr("evil.bin"));
  EXPECT_THAT(error_of([] { read_torch_zip(data("before_1_6.bin")); }, ErrorCode::kUnsupported),
              HasSubstr("before 1.6"));
}

// The same weights as half-precision .bin and as float32 safetensors.
TEST(TorchZip, EqualsTheReferenceCheckpoint) {
  TRIPTYCH_SHARED_OR_SKIP(folder, "golden/models/qwen_vl");
  const WeightTable exact = read_safetensors(folder / "model.safetensors");
  const auto file = MappedFile::open(folder / "pytorch_model.half.bin");
  const WeightTable half = read_torch_zip(file->bytes(), file, "half");
  ASSERT_EQ(half.size(), exact.size());
  for (const WeightEntry& entry : half) {
    const TensorView expected = exact.at(entry.name).view;
    ASSERT_EQ(entry.view.shape(), expected.shape()) << entry.name;
    ASSERT_TRUE(entry.view.dtype() == DType::kF16 || entry.view.dtype() == DType::kBF16);
    Tensor rounded(entry.view.dtype(), expected.shape());
    convert(expected, rounded);
    ASSERT_EQ(std::memcmp(rounded.view().cdata(), entry.view.cdata(), entry.view.size_bytes()), 0)
        << entry.name;
    EXPECT_GE(entry.view.data(), file->data());
    EXPECT_LT(entry.view.data(), file->data() + file->size_bytes());
  }
}

// Pickles by hand: what a Python pickler would not write.
std::string text(const std::string& s) {
  return "X" + little_endian(static_cast<std::uint32_t>(s.size())) + s;
}
std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
std::string integer(std::int64_t n) { return "\x8a\x08" + little_endian(n); }
std::string tuple(const std::vector<std::string>& items) {
  std::string out = "(";
  for (const std::string& item : items) out += item;
  return out + "t";
}
std::string integers(const std::vector<std::int64_t>& values) {
  std::vector<std::string> items;
  for (const std::int64_t v : values) items.push_back(integer(v));
  return tuple(items);
}

struct HandMade {
  std::string storage = global("torch", "FloatStorage");
  std::string key = text("0");
  std::int64_t n_elements = 4;
  std::int64_t offset = 0;
  std::vector<std::int64_t> size{2, 2};
  std::vector<std::int64_t> stride{2, 1};
  std::string bytes = floats({1, 2, 3, 4});

  std::string tensor() const {
    const std::string id = tuple({text("storage"), storage, key, text("cpu"), integer(n_elements)}) + "Q";
    return global("torch._utils", "_rebuild_tensor_v2") +
           tuple({id, integer(offset), integers(size), integers(stride), "\x89", "N"}) + "R";
  }
  std::string file() const { return torch_file("\x80\x02}(" + text("w") + tensor() + "u."); }
  std::string torch_file(const std::string& pickle) const {
    return zip({{"m/data.pkl", pickle}, {"m/data/0", bytes}, {"m/version", "3\n"}});
  }
};

WeightTable read(const std::string& bytes) { return read_torch_zip(test::as_bytes(bytes), nullptr, "x.bin"); }
std::string refusal(const HandMade& made, ErrorCode code = ErrorCode::kInvalidFile) {
  return error_of([&] { read(made.file()); }, code);
}

TEST(TorchZipHostile, TheHandMadeFileItselfLoads) {
  EXPECT_THAT(numbers(read(HandMade{}.file()).at("w").view), ElementsAre(1, 2, 3, 4));
}

TEST(TorchZipHostile, TensorsOutsideTheirStorage) {
  const std::int64_t max = std::numeric_limits<std::int64_t>::max();
  const auto refused = [](std::int64_t offset, std::vector<std::int64_t> size,
                          std::vector<std::int64_t> stride) {
    HandMade made;
    made.offset = offset;
    made.size = std::move(size);
    made.stride = std::move(stride);
    EXPECT_THAT(refusal(made), HasSubstr("tensor \"w\""));
  };
  refused(1, {2, 2}, {2, 1});
  refused(5, {1}, {1});
  refused(4, {1}, {1});
  refused(5, {0}, {1});
  refused(-1, {1}, {1});
  refused(max, {1}, {1});
  refused(0, {5}, {1});
  refused(0, {3}, {2});
  refused(0, {2, 2}, {max, max});
  refused(0, {2, 2}, {3, 1});
  refused(0, {2}, {-1});
  refused(0, {-2, -2}, {2, 1});
  refused(0, {max}, {1});
  refused(0, {max, 2}, {0, 1});
  refused(0, {std::int64_t{1} << 32, std::int64_t{1} << 32}, {0, 0});
  refused(0, {2, 2}, {1});
  refused(0, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1});
}

TEST(TorchZipHostile, StridesOfSinglesAndEmptiesAreFree) {
  const std::int64_t max = std::numeric_limits<std::int64_t>::max();
  HandMade made;
  made.size = {1, 2, 1, 2};
  made.stride = {max, 1, max, 2};
  EXPECT_THAT(numbers(read(made.file()).at("w").view), ElementsAre(1, 3, 2, 4));
  made.size = {0, 2};
  made.stride = {max, 1};
  EXPECT_EQ(read(made.file()).at("w").view.shape(), (Shape{0, 2}));
}

TEST(TorchZipHostile, RepeatedDataCannotFillTheMemory) {
  HandMade made;
  made.size = {std::int64_t{1} << 40};
  made.stride = {0};
  EXPECT_THAT(refusal(made, ErrorCode::kUnsupported), HasSubstr("repeats"));
  // Many copies of one storage: together not more than the file.
  made.bytes.assign(4000, '\0');
  made.n_elements = 1000;
  made.size = {10, 100};
  made.stride = {1, 10};
  std::string pickle = "\x80\x02}(";
  for (int i = 0; i < 50; ++i) pickle += text("w" + std::to_string(i)) + made.tensor();
  error_of([&] { read(made.torch_file(pickle + "u.")); }, ErrorCode::kUnsupported);
}

TEST(TorchZipHostile, Storages) {
  const auto with = [](const std::function<void(HandMade&)>& change,
                       ErrorCode code = ErrorCode::kInvalidFile) {
    HandMade made;
    change(made);
    return refusal(made, code);
  };
  EXPECT_THAT(with([](HandMade& m) { m.n_elements = 3; }), HasSubstr("storage"));
  EXPECT_THAT(with([](HandMade& m) { m.n_elements = std::int64_t{1} << 62; }), HasSubstr("storage"));
  EXPECT_THAT(with([](HandMade& m) { m.bytes += "x"; }), HasSubstr("storage"));
  EXPECT_THAT(with([](HandMade& m) { m.key = text("1"); }), HasSubstr("missing"));
  EXPECT_THAT(with([](HandMade& m) { m.key = text("../../etc/passwd"); }), HasSubstr("missing"));
  with([](HandMade& m) { m.key = integer(0); });
  with([](HandMade& m) { m.storage = text("torch FloatStorage"); });
  with([](HandMade& m) { m.storage = global("collections", "OrderedDict"); });
  with([](HandMade& m) { m.storage = global("torch.storage", "UntypedStorage"); });  // bytes without a dtype
  EXPECT_THAT(with([](HandMade& m) { m.storage = global("torch", "QInt8Storage"); }, ErrorCode::kUnsupported),
              HasSubstr("torch.QInt8Storage"));
}

TEST(TorchZipHostile, Archives) {
  const std::string pickle = "\x80\x02}.";
  EXPECT_TRUE(read(zip({{"m/data.pkl", pickle}})).empty());
  EXPECT_THAT(error_of([] { read(zip({})); }), HasSubstr("empty"));
  EXPECT_THAT(error_of([] { read(zip({{"m/other", "x"}})); }), HasSubstr("data.pkl"));
  EXPECT_THAT(error_of(
                  [&] {
                    read(zip({{"m/data.pkl", pickle}, {"m/byteorder", "big"}}));
                  },
                  ErrorCode::kUnsupported),
              HasSubstr("big"));
  EXPECT_TRUE(read(zip({{"m/data.pkl", pickle}, {"m/byteorder", "little"}}, true)).empty());
  EXPECT_TRUE(read(zip({{"data.pkl", pickle}})).empty());
  error_of([] { read(""); });
}

std::string pickle_error(const std::string& pickle, ErrorCode code = ErrorCode::kInvalidFile) {
  return error_of([&] { read(HandMade{}.torch_file(pickle)); }, code);
}

TEST(TorchZipHostile, Pickles) {
  const std::string whole = "\x80\x02}(" + text("w") + HandMade{}.tensor() + "u.";
  for (std::size_t n = 0; n < whole.size(); ++n) pickle_error(whole.substr(0, n));
  for (const char* bad : {".",
                          "(.",
                          "(t.",
                          "N.",
                          "}N.",
                          "]a.",
                          "(u.",
                          "}(Nu.",
                          "N(NNu.",
                          "NR.",
                          "NNR.",
                          "b.",
                          "Q.",
                          "\x85.",
                          "h\x01.",
                          "N(.",
                          "s.",
                          "]NNs.",
                          "X\xff\xff\xff\xffq.",
                          "\x8a\xff.",
                          "\x80\x63.",
                          "cos\nsystem",
                          "}u.",
                          "a.",
                          "e."})
    EXPECT_THROW(read(HandMade{}.torch_file(std::string(bad))), Error) << bad;
  EXPECT_THAT(pickle_error(global("os", "system") + tuple({text("id")}) + "R.", ErrorCode::kUnsupported),
              HasSubstr("os.system"));
  EXPECT_THAT(pickle_error(text("os") + text("system") + "\x93.", ErrorCode::kUnsupported),
              HasSubstr("os.system"));
  EXPECT_THAT(pickle_error(global("builtins", "eval") + ".", ErrorCode::kUnsupported),
              HasSubstr("builtins.eval"));
  // Names must be exact: no prefix of an allowed one, no more after it.
  pickle_error(global("torch._utils", "_rebuild_tensor_v2.x") + ".", ErrorCode::kUnsupported);
  pickle_error(global("torch", "Float") + ".", ErrorCode::kUnsupported);
  pickle_error(global("torch._utils _rebuild_tensor_v2", "") + ".", ErrorCode::kUnsupported);
  // Opcodes that make objects or call: INST, OBJ, NEWOBJ, NEWOBJ_EX, EXT1, BUFFER, and text numbers of old
  // protocols.
  for (const unsigned opcode : {0x69u, 0x6fu, 0x81u, 0x92u, 0x82u, 0x97u, 0x49u, 0x46u, 0x50u, 0xffu})
    EXPECT_THAT(pickle_error("}" + std::string(1, static_cast<char>(opcode)) + ".", ErrorCode::kUnsupported),
                HasSubstr(fmt::format("0x{:02x}", opcode)));
  pickle_error("}(" + text("w\xff") + HandMade{}.tensor() + "u.");  // not UTF-8
  pickle_error("}(" + integer(3) + HandMade{}.tensor() + "u.");     // a tensor without a name
  pickle_error("}(" + text("w") + HandMade{}.tensor() + text("w") + HandMade{}.tensor() + "u.");  // twice
  pickle_error(HandMade{}.tensor() + ".");                                                        // no dict
  pickle_error(global("collections", "OrderedDict") + tuple({"]"}) + "R.");
}

TEST(TorchZipHostile, DictsInsideThemselves) {
  EXPECT_THAT(pickle_error("}q\x01(" + text("d") + "h\x01u."), HasSubstr("nested"));
  // d0 in d1 twice, d1 in d2 twice, ...: 2^n walks for a naive reader.
  const auto byte = [](int i) { return std::string(1, static_cast<char>(i)); };
  std::string list = "](}q" + byte(0);
  for (int i = 1; i < 40; ++i)
    list += "}q" + byte(i) + "(" + text("a") + "h" + byte(i - 1) + text("b") + "h" + byte(i - 1) + "u";
  EXPECT_THAT(pickle_error("}(" + text("list") + list + "e" + text("top") + "h" + byte(6) + "u."),
              HasSubstr("twice"));
  std::string deep = "}";
  for (int i = 0; i < 100000; ++i) deep += text("d") + "}";
  for (int i = 0; i < 100000; ++i) deep += "s";
  EXPECT_THAT(pickle_error(deep + "."), HasSubstr("nested"));
}

TEST(PickleReader, LimitsSize) {
  const std::string huge(kMaxPickle_bytes + 1, ')');
  EXPECT_THAT(
      error_of([&] { read_pickle(test::as_bytes(huge), "p", [](std::string_view) { return false; }); }),
      HasSubstr("at most"));
  EXPECT_THAT(error_of([&] {
                read_pickle(test::as_bytes(huge).subspan(1), "p", [](std::string_view) { return false; });
              }),
              HasSubstr("too many"));
}

TEST(PickleReader, LongIntegers) {
  const auto value = [](const std::string& digits) {
    const std::string pickle = "\x8a" + std::string(1, static_cast<char>(digits.size())) + digits + ".";
    const Pickle p = read_pickle(test::as_bytes(pickle), "p", [](std::string_view) { return false; });
    return p.nodes[p.root].number;
  };
  EXPECT_EQ(value(""), 0);
  EXPECT_EQ(value("\xff"), -1);
  EXPECT_EQ(value(std::string("\xff\x00", 2)), 255);
  EXPECT_EQ(value(std::string("\x00\x00\x00\x00\x01", 5)), std::int64_t{1} << 32);
  EXPECT_EQ(value(little_endian(std::numeric_limits<std::int64_t>::min())),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_THROW(value(std::string(9, '\0')), Error);
}

}  // namespace
}  // namespace triptych
