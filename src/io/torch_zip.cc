#include "io/torch_zip.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "io/mapped_file.h"
#include "io/pickle_reader.h"
#include "io/untrusted_text.h"
#include "io/zip_reader.h"

namespace triptych {
namespace {

using Kind = PickleNode::Kind;

constexpr std::array<std::pair<std::string_view, DType>, 10> kStorages{
    {{"torch FloatStorage", DType::kF32},
     {"torch HalfStorage", DType::kF16},
     {"torch BFloat16Storage", DType::kBF16},
     {"torch DoubleStorage", DType::kF64},
     {"torch CharStorage", DType::kI8},
     {"torch ByteStorage", DType::kU8},
     {"torch ShortStorage", DType::kI16},
     {"torch IntStorage", DType::kI32},
     {"torch LongStorage", DType::kI64},
     {"torch BoolStorage", DType::kBool}}};
// Types that have no storage class of their own come as bytes and a dtype.
constexpr std::string_view kUntypedStorage = "torch.storage UntypedStorage";
constexpr std::array<std::pair<std::string_view, DType>, 5> kDtypes{{{"torch float8_e4m3fn", DType::kF8E4M3},
                                                                     {"torch float8_e5m2", DType::kF8E5M2},
                                                                     {"torch uint16", DType::kU16},
                                                                     {"torch uint32", DType::kU32},
                                                                     {"torch uint64", DType::kU64}}};
constexpr std::string_view kRebuildTensor2 = "torch._utils _rebuild_tensor_v2";
constexpr std::string_view kRebuildTensor3 = "torch._utils _rebuild_tensor_v3";
constexpr std::string_view kRebuildParameter = "torch._utils _rebuild_parameter";
constexpr std::string_view kOrderedDict = "collections OrderedDict";
constexpr int kMaxDepth = 8;  // of dicts in dicts

template <std::size_t N>
std::optional<DType> find_dtype(const std::array<std::pair<std::string_view, DType>, N>& table,
                                std::string_view name) {
  for (const auto& [known, dtype] : table)
    if (known == name) return dtype;
  return std::nullopt;
}

bool is_allowed(std::string_view global) {
  return find_dtype(kStorages, global) || find_dtype(kDtypes, global) || global == kUntypedStorage ||
         global == kRebuildTensor2 || global == kRebuildTensor3 || global == kRebuildParameter ||
         global == kOrderedDict || global == "torch Size";
}

class StateDict {
 public:
  StateDict(std::span<const std::byte> bytes, std::shared_ptr<const void> owner, std::string_view source)
      : owner_(std::move(owner)),
        source_(source),
        members_(read_zip(bytes, source)),
        copy_budget_bytes_(bytes.size()) {}

  WeightTable read() {
    if (members_.empty()) broken("the archive is empty");
    const std::string_view first = members_.begin()->first;
    folder_ = std::string(first.substr(0, first.find('/') + 1));
    const auto order = members_.find(folder_ + "byteorder");
    if (order != members_.end() && as_text(order->second) != "little")
      fail(ErrorCode::kUnsupported, "{}: byte order {} is not supported", source_,
           show_name(as_text(order->second)));
    const auto pickle = members_.find(folder_ + "data.pkl");
    if (pickle == members_.end()) broken("no data.pkl in the archive: not a file of torch.save");
    pickle_ = read_pickle(pickle->second, source_, is_allowed);
    if (!is_dict(pickle_.root)) broken("expected a dict of tensors");
    add_dict(pickle_.root, "", 0);
    return std::move(table_);
  }

 private:
  struct Storage {
    std::span<const std::byte> bytes;
    std::optional<DType> dtype;  // nothing for untyped bytes
  };

  [[noreturn]] void broken(std::string_view what) const {
    fail(ErrorCode::kInvalidFile, "{}: {}", source_, what);
  }
  [[noreturn]] void broken_tensor(std::string_view what) const {
    fail(ErrorCode::kInvalidFile, "{}: tensor {}: {}", source_, show_name(name_), what);
  }
  static std::string_view as_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  const PickleNode& node(std::uint32_t index) const { return pickle_.nodes[index]; }
  // The function of a call, "" for anything else.
  std::string_view function_of(std::uint32_t index) const {
    return node(index).kind == Kind::kCall ? std::string_view(node(node(index).items[0]).text)
                                           : std::string_view{};
  }
  bool is_dict(std::uint32_t index) const {
    return node(index).kind == Kind::kDict || function_of(index) == kOrderedDict;
  }

  void add_dict(std::uint32_t index, const std::string& prefix, int depth) {
    // Each dict once: shared dicts inside shared dicts could otherwise be walked exponentially often, or for
    // ever.
    if (depth > kMaxDepth || !seen_dicts_.insert(index).second)
      broken("dicts are nested too deeply or occur twice");
    const PickleNode& dict = node(index);
    if (dict.kind == Kind::kCall && !node(dict.items[1]).items.empty())
      broken("an OrderedDict made with arguments");
    for (std::size_t i = dict.kind == Kind::kCall ? 2 : 0; i + 1 < dict.items.size(); i += 2) {
      const std::uint32_t value = dict.items[i + 1];
      const std::string_view function = function_of(value);
      const bool is_tensor =
          function == kRebuildTensor2 || function == kRebuildTensor3 || function == kRebuildParameter;
      if (!is_tensor && !is_dict(value)) continue;
      if (node(dict.items[i]).kind != Kind::kText) broken("a tensor's name is not text");
      name_ = prefix + node(dict.items[i]).text;
      if (is_tensor) {
        add_tensor(value);
      } else {
        add_dict(value, name_ + ".", depth + 1);
      }
    }
  }

  void add_tensor(std::uint32_t index) {
    if (function_of(index) == kRebuildParameter) {
      const std::vector<std::uint32_t>& arguments = arguments_of(index, 3);
      index = arguments[0];
    }
    const bool has_dtype = function_of(index) == kRebuildTensor3;
    if (!has_dtype && function_of(index) != kRebuildTensor2) broken_tensor("a parameter without a tensor");
    const std::vector<std::uint32_t>& arguments = arguments_of(index, has_dtype ? 7 : 6);
    const Storage storage = read_storage(arguments[0]);
    std::optional<DType> dtype = storage.dtype;
    if (has_dtype) dtype = find_dtype(kDtypes, node(arguments[6]).text);
    if (!dtype) broken_tensor("its element type is not known");
    const std::vector<std::int64_t> size = read_integers(arguments[2]);
    std::vector<std::int64_t> stride = read_integers(arguments[3]);
    if (size.size() != stride.size() || size.size() > static_cast<std::size_t>(Shape::kMaxRank))
      broken_tensor(fmt::format("{} sizes and {} strides", size.size(), stride.size()));
    for (std::size_t i = 0; i < size.size(); ++i)
      if (size[i] <= 1) stride[i] = 0;  // never used; may be any number
    add_view(storage.bytes, *dtype, read_integer(arguments[1]), make_shape(size), stride);
  }

  Shape make_shape(const std::vector<std::int64_t>& size) const {
    try {
      return Shape(size);
    } catch (const Error& error) {
      broken_tensor(error.what());
    }
  }

  const std::vector<std::uint32_t>& arguments_of(std::uint32_t call, std::size_t at_least) const {
    const PickleNode& arguments = node(node(call).items[1]);
    if (node(call).items.size() != 2 || arguments.items.size() < at_least) broken_tensor("too few arguments");
    return arguments.items;
  }

  std::int64_t read_integer(std::uint32_t index) const {
    if (node(index).kind != Kind::kInt || node(index).number < 0) broken_tensor("expected an integer >= 0");
    return node(index).number;
  }

  // A tuple, or torch.Size of one.
  std::vector<std::int64_t> read_integers(std::uint32_t index) const {
    if (function_of(index) == "torch Size") index = arguments_of(index, 1)[0];
    if (node(index).kind != Kind::kTuple) broken_tensor("expected a tuple of integers");
    std::vector<std::int64_t> out;
    for (const std::uint32_t item : node(index).items) out.push_back(read_integer(item));
    return out;
  }

  // ("storage", class, key, location, number of elements)
  Storage read_storage(std::uint32_t index) const {
    if (node(index).kind != Kind::kPersistent) broken_tensor("expected a storage");
    const PickleNode& id = node(node(index).items[0]);
    if (id.kind != Kind::kTuple || id.items.size() != 5 || node(id.items[0]).text != "storage" ||
        node(id.items[1]).kind != Kind::kGlobal || node(id.items[2]).kind != Kind::kText)
      broken_tensor("expected a storage");
    const std::string& name = node(id.items[1]).text;
    Storage out{{}, find_dtype(kStorages, name)};
    if (!out.dtype && name != kUntypedStorage)
      broken_tensor(fmt::format("{} is no storage", show_name(name)));
    const auto member = members_.find(folder_ + "data/" + node(id.items[2]).text);
    if (member == members_.end())
      broken_tensor(
          fmt::format("its data {} is missing from the archive", show_name(node(id.items[2]).text)));
    out.bytes = member->second;
    const std::size_t element = out.dtype ? size_bytes(*out.dtype) : 1;
    const auto n = static_cast<std::uint64_t>(read_integer(id.items[4]));
    if (out.bytes.size() % element != 0 || out.bytes.size() / element != n)
      broken_tensor(
          fmt::format("its storage has {} bytes, expected {} elements of {}", out.bytes.size(), n, element));
    return out;
  }

  void add_view(std::span<const std::byte> storage, DType dtype, std::int64_t offset, const Shape& shape,
                const std::vector<std::int64_t>& stride) {
    const std::size_t element = size_bytes(dtype);
    const auto n_elements = static_cast<std::uint64_t>(storage.size() / element);
    // The last element's place; each term is bounded before it is added. An empty tensor reaches nowhere.
    auto last = static_cast<std::uint64_t>(offset);
    bool is_inside = shape.numel() > 0 ? last < n_elements : last <= n_elements;
    bool is_dense = true;
    std::uint64_t dense_stride = 1;
    for (std::size_t i = stride.size(); i-- > 0 && is_inside && shape.numel() > 0;) {
      const auto size = static_cast<std::uint64_t>(shape.dims()[i]);
      const auto step = static_cast<std::uint64_t>(stride[i]);
      if (size == 1) continue;
      is_inside = step == 0 || size - 1 <= (n_elements - 1 - last) / step;
      last += is_inside ? (size - 1) * step : 0;
      is_dense = is_dense && step == dense_stride;
      dense_stride *= size;
    }
    if (!is_inside) broken_tensor(fmt::format("shape {} reaches beyond its storage", to_string(shape)));
    const std::byte* data = storage.data() + static_cast<std::size_t>(offset) * element;
    WeightEntry entry{name_, {}, owner_, std::string(source_)};
    if (shape.numel() == 0 || (is_dense && reinterpret_cast<std::uintptr_t>(data) % element == 0)) {
      entry.view = TensorView::of_const(data, dtype, shape);
    } else {
      Buffer copy = copy_strided(data, element, shape, stride);
      entry.view = TensorView(copy.data(), dtype, shape);
      entry.owner = copy.owner();
    }
    table_.add(std::move(entry));
  }

  // Rare: a transposed or misaligned tensor. All copies together may not be larger than the file.
  Buffer copy_strided(const std::byte* data, std::size_t element, const Shape& shape,
                      const std::vector<std::int64_t>& stride) {
    const auto numel = static_cast<std::uint64_t>(shape.numel());
    if (numel > copy_budget_bytes_ / element)
      fail(ErrorCode::kUnsupported, "{}: tensor {}: shape {} repeats its data too often", source_,
           show_name(name_), to_string(shape));
    copy_budget_bytes_ -= static_cast<std::size_t>(numel) * element;
    Buffer out = Buffer::allocate(static_cast<std::size_t>(numel) * element);
    std::array<std::int64_t, Shape::kMaxRank> at{};
    std::int64_t from = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(numel); ++i) {
      std::memcpy(out.data() + i * element, data + static_cast<std::size_t>(from) * element, element);
      for (std::size_t d = stride.size(); d-- > 0;) {
        from += stride[d];
        if (++at[d] < shape.dims()[d]) break;
        from -= stride[d] * shape.dims()[d];
        at[d] = 0;
      }
    }
    return out;
  }

  std::shared_ptr<const void> owner_;
  std::string_view source_;
  std::map<std::string_view, std::span<const std::byte>> members_;
  std::size_t copy_budget_bytes_;
  std::string folder_;  // of all members, with its slash
  Pickle pickle_;
  std::unordered_set<std::uint32_t> seen_dicts_;
  std::string name_;  // of the tensor being read
  WeightTable table_;
};

}  // namespace

WeightTable read_torch_zip(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                           std::string_view source) {
  constexpr std::array<unsigned char, 4> kOldMagic{0x80, 0x02, 0x8a, 0x0a};  // torch.save before 1.6
  if (bytes.size() >= kOldMagic.size() && std::memcmp(bytes.data(), kOldMagic.data(), kOldMagic.size()) == 0)
    fail(ErrorCode::kUnsupported, "{}: written by PyTorch before 1.6; load and save it with a newer one",
         source);
  return StateDict(bytes, std::move(owner), source).read();
}

WeightTable read_torch_zip(const std::filesystem::path& path) {
  const auto file = MappedFile::open(path);
  return read_torch_zip(file->bytes(), file, path.string());
}

}  // namespace triptych
