#include "compress/yaml_json.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <charconv>
#include <sstream>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace triptych::compress {
namespace {

constexpr std::size_t kMaxBytes = 64 << 10;
constexpr std::size_t kMaxDepth = 32;

Json scalar_of(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  const char* const end = text.data() + text.size();
  std::int64_t integer = 0;
  if (const auto [at, error] = std::from_chars(text.data(), end, integer); error == std::errc() && at == end)
    return integer;
  double number = 0;
  const bool looks_like_one = text.find_first_of("0123456789") != std::string::npos;
  if (const auto [at, error] = std::from_chars(text.data(), end, number);
      looks_like_one && error == std::errc() && at == end)
    return number;
  return text;
}

// Builds the value as the parser goes, so that no alias can make it larger than the text.
class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(std::string_view source) : source_(source) {}
  Json take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add(mark, nullptr);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override { refuse_anchor(mark, anchor + 1); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    const bool is_quoted = tag == "!";
    if (!is_quoted && !tag.empty() && tag != "?") refuse(mark, "tags such as " + tag + " are not read");
    if (expects_key()) {
      key(mark, value);
      return;
    }
    add(mark, is_quoted ? Json(value) : scalar_of(value));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    open(mark, Json::array());
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    open(mark, Json::object());
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Open {
    Json* value;
    std::string key = {};
    bool has_key = false;
  };

  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& why) const {
    fail(ErrorCode::kInvalidFile, "{}:{}: {}", source_, mark.line + 1, why.substr(0, 200));
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0) refuse(mark, "anchors and aliases (&, *) are not read");
  }
  bool expects_key() const {
    return !open_.empty() && open_.back().value->is_object() && !open_.back().has_key;
  }
  void key(const YAML::Mark& mark, const std::string& name) {
    if (open_.back().value->contains(name)) refuse(mark, "the key " + name + " occurs twice");
    open_.back().key = name;
    open_.back().has_key = true;
  }
  Json* add(const YAML::Mark& mark, Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Open& into = open_.back();
    if (into.value->is_array()) {
      into.value->push_back(std::move(value));
      return &into.value->back();
    }
    if (!into.has_key) refuse(mark, "a key must be a text");
    into.has_key = false;
    return &((*into.value)[into.key] = std::move(value));
  }
  void open(const YAML::Mark& mark, Json value) {
    if (open_.size() >= kMaxDepth) refuse(mark, fmt::format("nested deeper than {} levels", kMaxDepth));
    Json* const made = add(mark, std::move(value));
    open_.push_back({.value = made});
  }

  std::string source_;
  Json root_;
  std::vector<Open> open_;
};

// The library's parser goes down with every bracket before it tells of the first.
void check_brackets(std::string_view text, std::string_view source) {
  std::size_t depth = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if (depth > 2 * kMaxDepth)
      fail(ErrorCode::kInvalidFile, "{}: nested deeper than {} levels", source, kMaxDepth);
  }
}

}  // namespace

Json parse_yaml(std::string_view text, std::string_view source) {
  if (text.size() > kMaxBytes)
    fail(ErrorCode::kInvalidFile, "{}: {} bytes, expected at most {}", source, text.size(), kMaxBytes);
  check_brackets(text, source);
  std::istringstream stream{std::string(text)};
  Builder builder(source);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return nullptr;
  } catch (const YAML::Exception& error) {
    fail(ErrorCode::kInvalidFile, "{}:{}: not valid YAML: {}", source, error.mark.line + 1,
         error.msg.substr(0, 200));
  }
  return builder.take();
}

}  // namespace triptych::compress
