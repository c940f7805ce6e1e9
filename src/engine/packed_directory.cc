#include "engine/packed_directory.h"

#include <algorithm>
#include <map>
#include <mutex>

#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/digest.h"
#include "base/error.h"
#include "io/mapped_file.h"
#include "io/safetensors_stream.h"

namespace triptych {
namespace {

constexpr const char* kMethod = "triptych";

std::optional<QuantFormat> read_format(const JsonView& json) {
  const std::string word = json.as_string();
  if (word == "auto") return std::nullopt;
  try {
    return QuantFormat::parse(word);
  } catch (const Error& error) {
    fail(ErrorCode::kInvalidFile, "{}: {}", json.path(), error.what());
  }
}

std::string word_of(const std::optional<QuantFormat>& format) {
  return format ? format->to_string() : "auto";
}

constexpr std::pair<DType, const char*> kDTypes[] = {
    {DType::kF32, "fp32"}, {DType::kF16, "fp16"}, {DType::kBF16, "bf16"}};

std::string word_of(const std::optional<DType>& dtype) {
  for (const auto& [known, word] : kDTypes)
    if (dtype == known) return word;
  return "auto";
}

}  // namespace

bool is_packed_directory(const Json& config) {
  const auto found = config.find("quantization_config");
  if (found == config.end() || !found->is_object()) return false;
  const auto method = found->find("quant_method");
  return method != found->end() && method->is_string() && *method == kMethod;
}

std::optional<std::string> foreign_quantization(const JsonView& config) {
  for (const auto& part : {std::optional(config), config.find("text_config")}) {
    if (!part || !part->is_object() || is_packed_directory(part->raw())) continue;
    const auto found = part->find("quantization_config");
    if (!found || !found->is_object()) continue;
    const auto method = found->find("quant_method");
    return method && method->is_string() ? method->as_string() : "unknown";
  }
  return std::nullopt;
}

Json PackedConfig::to_json() const {
  Json out = {{"quant_method", kMethod},
              {"format_version", kPackedFormatVersion},
              {"weights", word_of(formats.language)},
              {"vision_weights", word_of(formats.vision)},
              {"lm_head", word_of(formats.lm_head)},
              {"dtype", word_of(dtype)},
              {"index", kPackedIndexFile},
              {"index_blake2b", index_digest},
              {"header_blake2b", header_digest}};
  if (tie_word_embeddings) out["tie_word_embeddings"] = true;
  return out;
}

PackedConfig PackedConfig::parse(const JsonView& json) {
  const std::int64_t version = json.at("format_version").as_int(1);
  if (version != kPackedFormatVersion)
    fail(ErrorCode::kUnsupported,
         "{}.format_version: {}; this program reads version {}: convert the original checkpoint again, or "
         "use the program that wrote it",
         json.path(), version, kPackedFormatVersion);
  PackedConfig out;
  out.formats = {read_format(json.at("weights")), read_format(json.at("vision_weights")),
                 read_format(json.at("lm_head"))};
  const std::string dtype = json.get_string("dtype", "auto");
  for (const auto& [known, word] : kDTypes)
    if (dtype == word) out.dtype = known;
  if (dtype != word_of(out.dtype)) json.at("dtype").fail_expected("auto, fp32, fp16 or bf16");
  out.tie_word_embeddings = json.get_bool("tie_word_embeddings", false);
  if (json.at("index").as_string() != kPackedIndexFile)
    json.at("index").fail_expected(fmt::format("\"{}\"", kPackedIndexFile));
  out.index_digest = json.at("index_blake2b").as_string();
  out.header_digest = json.at("header_blake2b").as_string();
  return out;
}

PackedIndex read_packed_index(const Checkpoint& checkpoint, const PackedConfig& config) {
  const auto text = checkpoint.text_file(kPackedIndexFile);
  if (!text)
    fail(ErrorCode::kNotFound, "{}: {} is missing", checkpoint.directory().string(), kPackedIndexFile);
  const Json json = parse_json_unique_keys(*text, kPackedIndexFile);
  PackedIndex out = PackedIndex::parse(JsonView(json, kPackedIndexFile));  // first: a newer version says so
  if (digest_hex(std::as_bytes(std::span(*text))) != config.index_digest)
    fail(ErrorCode::kInvalidFile, "{}: its checksum is not the one in config.json: it was changed",
         kPackedIndexFile);
  for (const std::string& name : checkpoint.weight_files())
    if (safetensors_header_digest(*checkpoint.file(name)) != config.header_digest)
      fail(ErrorCode::kInvalidFile,
           "{}: the checksum of its header is not the one in config.json: it was changed, or belongs "
           "elsewhere",
           name);
  for (const auto& [name, digest] : out.checksums)
    if (!checkpoint.weights().contains(name))
      fail(ErrorCode::kInvalidFile, "{}: tensor {} is not in the weight file", kPackedIndexFile, name);
  if (out.checksums.size() != checkpoint.weights().size())
    fail(ErrorCode::kInvalidFile, "{}: it has {} tensors, the weight file {}", kPackedIndexFile,
         out.checksums.size(), checkpoint.weights().size());
  return out;
}

void check_same_formats(const PackedConfig& stored, const LoadOptions& asked) {
  const auto check = [](const char* flag, const std::string& has, const std::string& wants) {
    if (wants != "auto" && wants != has)
      fail(ErrorCode::kInvalidArgument,
           "{} {}: the weights are stored as {}; leave the flag out, or convert the original checkpoint",
           flag, wants, has == "auto" ? "they were" : has);
  };
  check("--weights",
        stored.dtype && !stored.formats.language ? word_of(stored.dtype) : word_of(stored.formats.language),
        asked.weight_dtype ? word_of(asked.weight_dtype) : word_of(asked.weight_formats.language));
  check("--vision-weights", word_of(stored.formats.vision), word_of(asked.weight_formats.vision));
  check("--lm-head", word_of(stored.formats.lm_head), word_of(asked.weight_formats.lm_head));
}

void check_packed_weights(const Checkpoint& checkpoint, ThreadPool& pool) {
  const PackedConfig config = PackedConfig::parse(checkpoint.config_view().at("quantization_config"));
  const PackedIndex index = read_packed_index(checkpoint, config);
  std::map<std::string, const StoredLinear*> linears;  // by their panels, which are read once
  for (const StoredLinear& linear : index.linears) linears.emplace(linear.tensor_name("panels"), &linear);
  std::vector<const WeightEntry*> entries;
  for (const WeightEntry& entry : checkpoint.weights()) entries.push_back(&entry);
  std::mutex mutex;
  std::vector<std::string> damaged;
  std::vector<std::string> unusable;  // what is wrong although the checksum is right
  pool.parallel_for(entries.size(), 1, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t i = begin; i < end; ++i) {
      const WeightEntry& entry = *entries[i];
      const TensorView& view = entry.view;
      const std::string digest = digest_hex({static_cast<const std::byte*>(view.cdata()), view.size_bytes()});
      std::string problem;
      if (const auto linear = linears.find(entry.name); linear != linears.end()) try {
          check_packed_scales(linear->second->id.text(),
                              find_packed_linear(checkpoint.weights(), *linear->second));
        } catch (const Error& error) {
          problem = error.what();
        }
      release(entry);
      const std::scoped_lock lock(mutex);
      if (digest != index.checksums.at(entry.name)) damaged.push_back(entry.name);
      if (!problem.empty()) unusable.push_back(problem);
    }
  });
  if (damaged.empty() && unusable.empty()) return;
  const std::string& file = checkpoint.weight_files().front();
  if (damaged.empty())
    fail(ErrorCode::kInvalidFile, "{}: {}", file, *std::min_element(unusable.begin(), unusable.end()));
  std::sort(damaged.begin(), damaged.end());
  std::string list;
  for (std::size_t i = 0; i < damaged.size() && i < 8; ++i) list.append(i > 0 ? ", " : "").append(damaged[i]);
  fail(ErrorCode::kInvalidFile, "{}: {} of {} tensors are damaged (their checksums differ): {}{}", file,
       damaged.size(), entries.size(), list, damaged.size() > 8 ? ", ..." : "");
}

}  // namespace triptych
