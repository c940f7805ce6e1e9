#include "io/folder_kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <optional>
#include <system_error>
#include <vector>

#include "io/untrusted_text.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLfsStart = "version https://git-lfs.github.com/spec/";
constexpr const char* kExpected =
    "expected a checkpoint folder: config.json, safetensors or PyTorch weights, tokenizer";

bool is_hub_word(std::string_view word) {
  return !word.empty() && word[0] != '.' && word[0] != '-' &&
         std::all_of(word.begin(), word.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                  c == '_' || c == '.';
         });
}

// "ORG/NAME" of such a name or of an address "https://huggingface.co/ORG/NAME/...".
std::optional<std::string> hub_id(std::string text) {
  bool is_address = false;
  for (const std::string_view scheme : {"https://", "http://"})
    if (text.starts_with(scheme)) text.erase(0, scheme.size()), is_address = true;
  bool is_hub = !is_address;
  for (const std::string_view host : {"huggingface.co/", "www.huggingface.co/", "hf.co/", "hf://"})
    if (text.starts_with(host)) text.erase(0, host.size()), is_address = is_hub = true;
  if (!is_hub) return std::nullopt;
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  std::size_t end = text.find_first_of("/?#", slash + 1);
  if (end != std::string::npos && !is_address) return std::nullopt;
  end = std::min(end, text.size());
  const std::string org = text.substr(0, slash);
  const std::string name = text.substr(slash + 1, end - slash - 1);
  if (!is_hub_word(org) || !is_hub_word(name)) return std::nullopt;
  return org + '/' + name;
}

bool has_ending(const fs::path& path, std::string_view ending) {
  std::string found = path.extension().string();
  std::transform(found.begin(), found.end(), found.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  return found == ending;
}

bool is_gguf_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::array<char, 4> start{};
  in.read(start.data(), start.size());
  return in.gcount() == 4 && std::string_view(start.data(), start.size()) == "GGUF";
}

std::vector<std::string> names_in(const fs::path& folder) {
  constexpr std::size_t kMost = 10000;
  std::vector<std::string> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end && out.size() < kMost;
       it.increment(error))
    out.push_back(it->path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

// A folder blobs, refs, snapshots: the snapshot that refs/main names, else the first.
std::optional<fs::path> snapshot_in(const fs::path& cache) {
  std::error_code error;
  if (!fs::is_directory(cache / "snapshots", error)) return std::nullopt;
  std::string revision;
  std::ifstream(cache / "refs" / "main") >> revision;
  if (is_hub_word(revision) && fs::is_directory(cache / "snapshots" / revision, error))
    return cache / "snapshots" / revision;
  const std::vector<std::string> names = names_in(cache / "snapshots");
  return names.empty() ? cache / "snapshots" : cache / "snapshots" / names.front();
}

std::string shown(const fs::path& path) { return show_name(path.string()); }

std::string why_no_folder(const fs::path& path) {
  const std::string name = path.string();
  if (const std::optional<std::string> id = hub_id(name)) {
    const std::string folder = id->substr(id->find('/') + 1);
    return fmt::format(
        "there is no such folder; if it is a model of the hub, fetch it with `hf download {} --local-dir {}` "
        "and "
        "give {}",
        *id, folder, folder);
  }
  return "there is no such folder";
}

std::string why_file(const fs::path& path) {
  if (is_gguf_file(path) || has_ending(path, ".gguf"))
    return fmt::format("it is a GGUF file, which this program does not read; {}, as the model was published",
                       kExpected);
  std::error_code error;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (fs::exists(folder / "config.json", error))
    return fmt::format("expected a checkpoint folder, it is a file; give its folder {}", shown(folder));
  return fmt::format("it is a file; {}", kExpected);
}

std::string why_folder(const fs::path& path) {
  if (const std::optional<fs::path> snapshot = snapshot_in(path))
    return fmt::format("config.json is missing: it is a model's folder in the hub's cache; give {}",
                       shown(*snapshot));
  const std::vector<std::string> names = names_in(path);
  for (const std::string& name : names)
    if (name.starts_with("models--"))
      if (const std::optional<fs::path> snapshot = snapshot_in(path / name))
        return fmt::format(
            "config.json is missing: it is the hub's cache of several models; give one of them, such as {}",
            shown(*snapshot));
  for (const std::string& name : names)
    if (has_ending(name, ".gguf"))
      return fmt::format(
          "config.json is missing: the folder holds GGUF files ({}), which this program does not "
          "read; {}, as the model was published",
          show_name(name), kExpected);
  for (const std::string& name : names) {
    std::error_code error;
    if (fs::exists(path / name / "config.json", error))
      return fmt::format("config.json is missing; there is one in {}", shown(path / name));
  }
  return fmt::format("config.json is missing; {}", kExpected);
}

}  // namespace

bool is_lfs_pointer(std::string_view text) noexcept { return text.starts_with(kLfsStart); }

std::string lfs_message(std::string_view pointer) {
  std::string size;
  const std::size_t at = pointer.substr(0, 1024).find("\nsize ");
  if (at != std::string_view::npos) {
    std::uint64_t bytes = 0;
    const char* begin = pointer.data() + at + 6;
    if (std::from_chars(begin, pointer.data() + pointer.size(), bytes).ec == std::errc())
      size = fmt::format(" ({} bytes)", bytes);
  }
  return fmt::format(
      "a pointer of git-lfs to a file that was not fetched{}; run `git lfs pull` in the clone, or fetch the "
      "model "
      "with `hf download`",
      size);
}

std::string why_no_checkpoint(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found || status.type() == fs::file_type::none)
    return why_no_folder(path);
  return status.type() == fs::file_type::directory ? why_folder(path) : why_file(path);
}

}  // namespace triptych
