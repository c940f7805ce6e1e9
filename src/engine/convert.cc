// Writing a packed directory.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <system_error>

#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/error.h"
#include "engine/calibrate.h"
#include "engine/packed_directory.h"
#include "engine/self_draft.h"
#include "io/mapped_file.h"
#include "io/safetensors_stream.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

// Reference values (evaluation/golden.h); their tensors are weight files by name.
constexpr std::string_view kGoldenFile = "golden.json";

// Weights in whatever form, and what names their pieces: replaced by the packed file.
bool is_weight_file(const fs::path& name) {
  static constexpr std::string_view kTails[] = {".safetensors", ".bin",  ".pt",   ".pth",        ".ckpt",
                                                ".h5",          ".gguf", ".onnx", ".index.json", ".msgpack"};
  const std::string text = name.filename().string();
  return std::any_of(std::begin(kTails), std::end(kTails),
                     [&](std::string_view tail) { return text.ends_with(tail); });
}

// A folder that goes away unless it is kept.
class NewDirectory {
 public:
  explicit NewDirectory(fs::path path) : path_(std::move(path)) {
    std::error_code error;
    fs::remove_all(path_, error);  // of a process of this number that was killed
    if (!fs::create_directory(path_, error) || error)
      fail(ErrorCode::kIo, "{}: cannot create {}: {}", path_.parent_path().string(),
           path_.filename().string(), error.message());
  }
  ~NewDirectory() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;
  const fs::path& path() const noexcept { return path_; }

  void move_to(const fs::path& to) {
    move_directory(path_, to, true);
    path_.clear();
  }

 private:
  fs::path path_;
};

// Writes what a model binds as it comes. Small tensors wait for the end, since loading reads them and should
// not read the whole file with them; so does whatever would leave the next tensor unaligned.
class Writer final : public WeightSink {
 public:
  Writer(const fs::path& path, std::size_t header_room_bytes) : stream_(path, header_room_bytes) {}

  void linear(const StoredLinear& linear, const LinearWeight& weight) override {
    for (const PackedArray& array : weight.packed()) {
      TRIPTYCH_CHECK(array.view.size_bytes() % Buffer::kAlignment_bytes == 0, "{}: {} is ragged",
                     linear.id.text(), array.name);
      if (array.view.size_bytes() <= kSmall_bytes)
        small_.emplace_back(linear.tensor_name(array.name), Tensor::copy_of(array.view));
      else
        stream_.append(linear.tensor_name(array.name), array.view);
    }
    index_.linears.push_back(linear);
  }
  void tensor(const std::string& name, const WeightEntry& entry) override {
    if (!taken_.insert(name).second) return;
    const bool is_ragged = entry.view.size_bytes() % Buffer::kAlignment_bytes != 0;
    if (!is_ragged && entry.view.size_bytes() <= kSmall_bytes) {
      small_.emplace_back(name, Tensor::copy_of(entry.view));
      release(entry);
      return;
    }
    if (is_ragged || !entry.view.is_contiguous()) {
      ragged_.emplace_back(name, entry);
      return;
    }
    stream_.append(name, entry.view);
    release(entry);
  }

  // Gives the checksum of the header.
  std::string finish() {
    for (const auto& [name, tensor] : small_) stream_.append(name, tensor);
    // Larger elements first, so that every element is aligned for its type.
    std::stable_sort(ragged_.begin(), ragged_.end(), [](const auto& a, const auto& b) {
      return size_bytes(a.second.view.dtype()) > size_bytes(b.second.view.dtype());
    });
    for (const auto& [name, entry] : ragged_) {
      if (entry.view.is_contiguous())
        stream_.append(name, entry.view);
      else
        stream_.append(name, Tensor::copy_of(entry.view));
    }
    std::string digest = stream_.finish();
    index_.checksums = stream_.checksums();
    return digest;
  }
  const PackedIndex& index() const noexcept { return index_; }
  std::size_t n_tensors() const noexcept { return taken_.size(); }
  std::uint64_t data_bytes() const noexcept { return stream_.data_bytes(); }

 private:
  static constexpr std::size_t kSmall_bytes = 256 * 1024;
  SafetensorsStream stream_;
  PackedIndex index_;
  std::vector<std::pair<std::string, Tensor>> small_;
  std::set<std::string> taken_;
  std::vector<std::pair<std::string, WeightEntry>> ragged_;
};

// All other files, and folders of files, of the checkpoint, counted in `out`. Links must lead where a
// checkpoint's may.
void copy_small_files(const Checkpoint& from, const fs::path& directory, const fs::path& to, LinkPolicy links,
                      int depth, ConvertReport& out) {
  constexpr int kMaxDepth = 4;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(".") || is_weight_file(name) || (depth == 0 && name == "config.json")) continue;
    if (name == kGoldenFile) {
      out.left_out_golden = true;
      continue;
    }
    const fs::path target = to / name;
    std::error_code ignored;
    if (it->is_directory(ignored) && !it->is_symlink(ignored)) {
      if (depth == kMaxDepth) continue;
      fs::create_directory(target, error);
      copy_small_files(from, it->path(), target, links, depth + 1, out);
      if (fs::is_empty(target, error)) fs::remove(target, error);
      continue;
    }
    std::optional<fs::path> path;
    if (depth == 0) {
      path = from.file(name);
    } else {
      const fs::path found = fs::canonical(it->path(), error);
      if (error) fail(ErrorCode::kIo, "{}: {}", it->path().string(), error.message());
      if (fs::is_regular_file(found) &&
          (!it->is_symlink(ignored) || may_lead_to(from.directory(), found, links)))
        path = found;
    }
    if (!path) continue;
    fs::copy_file(*path, target, error);
    if (error) fail(ErrorCode::kIo, "{}: cannot copy: {}", target.string(), error.message());
    ++out.n_files;
  }
  if (error) fail(ErrorCode::kIo, "{}: {}", directory.string(), error.message());
}

std::size_t header_room(const WeightTable& weights, const LoadOptions& options) {
  // A linear has up to four arrays, and rows of one matrix are up to three linears.
  std::size_t out = 1 << 16;
  for (const WeightEntry& entry : weights)
    out += 5 * SafetensorsStream::header_bytes_of(entry.name + "[1000000:1000000].column_factors");
  if (!options.vision_tower.empty()) out += std::size_t{4} << 20;  // tensors of another checkpoint
  return std::min(out, std::size_t{24} << 20);
}

// With the tower as it will be, and the rest as it is stored, which is not read.
ActivationQuantMap find_activation_quants(const fs::path& from, const ConvertOptions& options) {
  check_takes_activation_quants(options.load.weight_formats);
  LoadOptions load = options.load;
  load.weight_formats.language = load.weight_formats.lm_head = std::nullopt;
  load.weight_dtype = std::nullopt;
  load.exact_groups = false;
  load.progress = {};
  const auto model = LoadedModel::open(from, load);
  return calibrate_inputs(*model, options.calibration_pictures, options.calibration_progress);
}

// As the new directory will be used.
SelfDraft search_self_draft(const fs::path& directory, const ConvertOptions& options) {
  LoadOptions load;
  load.n_threads = options.load.n_threads;
  load.pin_threads = options.load.pin_threads;
  load.links = options.load.links;
  const auto model = LoadedModel::open(directory, load);
  return find_self_draft(*model, options.self_draft_pictures, {}, options.self_draft_progress);
}

}  // namespace

// Replacing is for what this program wrote: a slip of the finger must not cost a folder of something else.
void check_convert_target(const std::vector<fs::path>& inputs, const fs::path& to, bool replace) {
  std::error_code error;
  const fs::file_status status = fs::status(to, error);
  if (status.type() == fs::file_type::not_found) return;
  if (status.type() != fs::file_type::directory)
    fail(ErrorCode::kInvalidArgument, "{}: it exists and is no folder", to.string());
  for (const fs::path& input : inputs)
    if (is_below(fs::canonical(input, error), fs::canonical(to, error)))
      fail(ErrorCode::kInvalidArgument, "{}: it is or holds the checkpoint {}; give another folder",
           to.string(), input.string());
  if (fs::is_empty(to, error)) return;
  const bool is_ours = fs::exists(to / kPackedIndexFile, error);
  if (!is_ours)
    fail(ErrorCode::kInvalidArgument,
         "{}: the folder is not empty and holds no converted checkpoint, which --force would replace; give "
         "another folder",
         to.string());
  if (!replace)
    fail(ErrorCode::kInvalidArgument, "{}: the folder is not empty; --force replaces it", to.string());
}

void move_directory(const fs::path& from, const fs::path& to, bool replace) {
  std::error_code error;
  const fs::path old = from.string() + ".old";
  const bool replaces = fs::exists(to, error) && !fs::is_empty(to, error);
  if (replaces && !replace)
    fail(ErrorCode::kInvalidArgument, "{}: the folder is not empty; --force replaces it", to.string());
  if (replaces) fs::rename(to, old, error);
  if (!error) fs::rename(from, to, error);
  if (error) {
    std::error_code ignored;
    if (replaces && !fs::exists(to, ignored)) fs::rename(old, to, ignored);
    fail(ErrorCode::kIo, "{}: cannot write: {}", to.string(), error.message());
  }
  if (replaces) fs::remove_all(old, error);
}

ConvertReport convert_checkpoint(const fs::path& from, const fs::path& to, const ConvertOptions& options) {
  if (!options.load.weight_formats.any() && !options.load.weight_dtype && !options.load.replaced_weights)
    fail(ErrorCode::kInvalidArgument, "--weights, --vision-weights or --lm-head must say to what");
  CheckpointOptions checkpoint_options;
  checkpoint_options.links = options.load.links;
  const Checkpoint checkpoint = Checkpoint::open(from, checkpoint_options);
  if (is_packed_directory(checkpoint.config()))
    fail(ErrorCode::kInvalidArgument, "{}: it is converted already; convert the original checkpoint",
         from.string());
  std::vector<fs::path> inputs = {from};
  if (!options.load.vision_tower.empty()) inputs.push_back(options.load.vision_tower);
  if (to.empty()) fail(ErrorCode::kInvalidArgument, "expected the name of a folder to write, got \"\"");
  check_convert_target(inputs, to, options.replace);
  fs::path target = to.filename().empty() ? to.parent_path() : to;
  target = fs::absolute(target).lexically_normal();
  if (std::error_code error; !fs::is_directory(target.parent_path(), error))
    fail(ErrorCode::kNotFound, "{}: cannot create: there is no folder {}", to.string(),
         target.parent_path().string());
  NewDirectory directory(target.parent_path() /
                         fmt::format(".{}.{}.partial", target.filename().string(), ::getpid()));

  Writer writer(directory.path() / "model.safetensors", header_room(checkpoint.weights(), options.load));
  LoadOptions load = options.load;
  if (!options.calibration_pictures.empty()) load.activation_quants = find_activation_quants(from, options);
  load.sink = &writer;
  const auto model = LoadedModel::open(from, load);
  PackedConfig packed{.formats = options.stated_formats.value_or(load.weight_formats),
                      .dtype = load.weight_dtype,
                      .tie_word_embeddings = load.tie_word_embeddings,
                      .index_digest = {},
                      .header_digest = writer.finish()};
  const std::string index = writer.index().to_json().dump(1);
  write_text_file(directory.path() / kPackedIndexFile, index);
  packed.index_digest = digest_hex(std::as_bytes(std::span(index)));
  Json config = checkpoint.config();
  config["quantization_config"] = packed.to_json();
  config.erase("self_draft");
  write_text_file(directory.path() / "config.json", config.dump(2) + "\n");
  ConvertReport report{.n_linears = writer.index().linears.size(),
                       .n_tensors = writer.n_tensors(),
                       .n_files = 0,
                       .source_bytes = checkpoint.weights().total_bytes(),
                       .written_bytes = writer.data_bytes(),
                       .self_draft = {}};
  copy_small_files(checkpoint, checkpoint.directory(), directory.path(), options.load.links, 0, report);
  if (!options.self_draft_pictures.empty()) {
    report.self_draft = search_self_draft(directory.path(), options);
    config["self_draft"] = to_json(report.self_draft);
    write_text_file(directory.path() / "config.json", config.dump(2) + "\n");
  }
  directory.move_to(target);
  return report;
}

}  // namespace triptych
