// Where a checkpoint directory keeps its template. Order of preference as in transformers: a file of its own,
// then the processor's JSON, then the tokenizer's.
#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "base/checkpoint_links.h"
#include "base/error.h"
#include "base/json.h"
#include "text/chat_template_impl.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxFileBytes = 64u << 20;
constexpr std::size_t kMaxNamedTemplates = 64;

struct Source {
  std::string name;
  std::string text;
  std::string file;
};

/// The bytes of a regular file of the checkpoint, or nothing when it does not exist. A FIFO or device is
/// refused before it is opened, and so is a link that leads where a checkpoint's may not.
std::optional<std::string> read_file(const fs::path& checkpoint, const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return std::nullopt;
  if (!fs::is_regular_file(status)) fail(ErrorCode::kInvalidFile, "{}: not a regular file", path.string());
  std::error_code unresolved;
  const fs::path target = fs::canonical(path, error);
  const fs::path root = fs::canonical(checkpoint, unresolved);
  if (error || unresolved || !may_lead_to(root, target))
    fail(ErrorCode::kInvalidFile, "{}: the link leads out of the checkpoint folder", path.string());
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) fail(ErrorCode::kIo, "{}: {}", path.string(), error.message());
  if (size > kMaxFileBytes)
    fail(ErrorCode::kInvalidFile, "{}: {} bytes exceed {}", path.string(), size, kMaxFileBytes);
  std::ifstream in(path, std::ios::binary);
  std::string bytes(static_cast<std::size_t>(size), '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!in && size != 0) fail(ErrorCode::kIo, "{}: cannot be read", path.string());
  return bytes;
}

void add_source(std::vector<Source>& out, Source source) {
  for (const Source& other : out)
    if (other.name == source.name)
      fail(ErrorCode::kInvalidFile, "{}: the template \"{}\" is given twice", source.file, source.name);
  if (out.size() >= kMaxNamedTemplates)
    fail(ErrorCode::kInvalidFile, "{}: more than {} templates", source.file, kMaxNamedTemplates);
  out.push_back(std::move(source));
}

/// "chat_template" of a JSON file: a string, a list of {"name", "template"}, or an object of name -> string.
std::vector<Source> from_json_file(const fs::path& checkpoint, const fs::path& path) {
  std::vector<Source> out;
  const auto bytes = read_file(checkpoint, path);
  if (!bytes) return out;
  const std::string file = path.filename().string();
  const Json document = parse_json(*bytes, file);
  const auto field = JsonView(document, file).find("chat_template");
  if (!field) return out;
  if (field->is_string()) {
    add_source(out, {"default", field->as_string(), file});
  } else if (field->is_array()) {
    for (const JsonView& item : field->items())
      add_source(out, {item.at("name").as_string(), item.at("template").as_string(), file});
  } else {
    for (const auto& [name, item] : field->members()) add_source(out, {name, item.as_string(), file});
  }
  return out;
}

/// chat_template.jinja and additional_chat_templates/*.jinja.
std::vector<Source> from_jinja_files(const fs::path& directory) {
  std::vector<Source> out;
  if (auto text = read_file(directory, directory / "chat_template.jinja"))
    add_source(out, {"default", *std::move(text), "chat_template.jinja"});
  const fs::path more = directory / "additional_chat_templates";
  std::error_code error;
  if (!fs::is_directory(more, error)) return out;
  std::vector<fs::path> paths;
  for (fs::directory_iterator it(more, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".jinja") paths.push_back(it->path());
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths)
    if (auto text = read_file(directory, path))
      add_source(out, {path.stem().string(), *std::move(text),
                       "additional_chat_templates/" + path.filename().string()});
  return out;
}

std::vector<Source> find_sources(const fs::path& directory) {
  if (auto out = from_jinja_files(directory); !out.empty()) return out;
  for (const char* name : {"chat_template.json", "processor_config.json", "tokenizer_config.json"})
    if (auto out = from_json_file(directory, directory / name); !out.empty()) return out;
  return {};
}

std::string list_names(const std::vector<Source>& sources) {
  std::string out;
  for (const Source& source : sources) out += fmt::format("{}\"{}\"", out.empty() ? "" : ", ", source.name);
  return out;
}

}  // namespace

std::optional<ChatTemplate> ChatTemplate::from_directory(const fs::path& directory,
                                                         std::string_view template_name) {
  const std::vector<Source> sources = find_sources(directory);
  if (sources.empty()) {
    if (!template_name.empty())
      fail(ErrorCode::kNotFound, "{}: no chat template, asked for \"{}\"", directory.string(), template_name);
    return std::nullopt;
  }
  auto impl = std::make_shared<Impl>();
  for (const Source& source : sources)
    if (template_name.empty() || source.name == template_name)
      impl->add(source.name, source.text, source.file);
  if (impl->templates.empty())
    fail(ErrorCode::kNotFound, "{}: no chat template \"{}\"; there are {}", directory.string(), template_name,
         list_names(sources));
  if (impl->templates.size() > 1 && impl->find("default") == nullptr)
    fail(ErrorCode::kInvalidFile,
         "{}: several chat templates and none is \"default\": {}; choose one by name", directory.string(),
         list_names(sources));
  return ChatTemplate(std::move(impl));
}

}  // namespace triptych
