#include "text/tokenizer_tables.h"

#include <limits>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace triptych {
namespace {

constexpr std::size_t kMaxDepth = 256;
constexpr std::size_t kMaxEntries = 1 << 24;

class TableReader final : public Json::json_sax_t {
 public:
  TableReader(std::string_view source, ModelTables& tables, bool root_is_vocab)
      : source_(source), tables_(tables), root_is_vocab_(root_is_vocab) {}

  Json take() { return std::move(root_); }

  bool null() override { return value(nullptr); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override {
    return mode_ == Mode::kTree ? value(v) : number(v, static_cast<double>(v));
  }
  bool number_unsigned(number_unsigned_t v) override {
    if (mode_ == Mode::kTree) return value(v);
    const bool fits = v <= static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max());
    return number(fits ? static_cast<std::int64_t>(v) : -1, static_cast<double>(v));
  }
  bool number_float(number_float_t v, const string_t&) override {
    return mode_ == Mode::kTree ? value(v) : number(-1, v);
  }
  bool binary(binary_t&) override { return false; }

  bool string(string_t& v) override {
    if (mode_ == Mode::kTree) return value(std::move(v));
    if (mode_ == Mode::kMerges && row_ == kNoRow) {
      // Files of older versions start with a line "#version: ...".
      if (!v.starts_with("#version")) add_merge(split_merge(v, place()));
      return true;
    }
    if (mode_ == Mode::kScores && row_ == 0) {
      first_ = std::move(v);
    } else if (mode_ == Mode::kMerges && row_ == 0) {
      first_ = std::move(v);
    } else if (mode_ == Mode::kMerges && row_ == 1) {
      second_ = std::move(v);
    } else {
      bad();
    }
    ++row_;
    return true;
  }

  bool key(string_t& v) override {
    key_ = std::move(v);
    return true;
  }

  bool start_object(std::size_t) override {
    if (mode_ != Mode::kTree) bad();
    if (at_table("vocab") || (root_is_vocab_ && stack_.empty())) {
      tables_.has_vocab = true;
      mode_ = Mode::kVocab;
      return true;
    }
    return open(Json::object());
  }
  bool end_object() override {
    if (mode_ == Mode::kVocab) {
      mode_ = Mode::kTree;
      return true;
    }
    return close();
  }
  bool start_array(std::size_t) override {
    if (mode_ == Mode::kTree) {
      if (at_table("vocab")) {
        tables_.has_vocab = true;
        mode_ = Mode::kScores;
      } else if (at_table("merges")) {
        tables_.has_merges = true;
        mode_ = Mode::kMerges;
      } else {
        return open(Json::array());
      }
      row_ = kNoRow;
      return true;
    }
    if (mode_ == Mode::kVocab || row_ != kNoRow) bad();
    row_ = 0;
    return true;
  }
  bool end_array() override {
    if (mode_ == Mode::kTree) return close();
    if (row_ == kNoRow) {
      mode_ = Mode::kTree;
      return true;
    }
    if (row_ != 2) bad();
    row_ = kNoRow;
    if (mode_ == Mode::kMerges)
      add_merge({std::move(first_), std::move(second_)});
    else
      add_token(std::move(first_), static_cast<std::int32_t>(tables_.vocab.size()));
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    std::string what = error.what();
    if (const auto end = what.find("] "); end != std::string::npos) what = what.substr(end + 2);
    if (what.size() > 300) what = what.substr(0, 300) + "...";
    fail(ErrorCode::kInvalidFile, "{}: not valid JSON: {}", source_, what);
  }

 private:
  enum class Mode { kTree, kVocab, kScores, kMerges };
  static constexpr std::size_t kNoRow = ~std::size_t{0};

  // A value of the member `name` of the member "model" of the root comes next.
  bool at_table(const char* name) const {
    return !root_is_vocab_ && stack_.size() == 2 && stack_[1]->is_object() && model_key_ == "model" &&
           key_ == name;
  }
  std::string place() const {
    const std::string root = root_is_vocab_ ? std::string(source_) : fmt::format("{}: model", source_);
    if (mode_ == Mode::kMerges) return fmt::format("{}.merges[{}]", root, tables_.merges.size());
    if (mode_ == Mode::kScores) return fmt::format("{}.vocab[{}]", root, tables_.vocab.size());
    return fmt::format("{}{}[\"{}\"]", root, root_is_vocab_ ? ": " : ".vocab", key_);
  }
  [[noreturn]] void bad() const {
    const char* expected = mode_ == Mode::kMerges   ? "\"a b\" or [\"a\", \"b\"]"
                           : mode_ == Mode::kScores ? "[token, score]"
                                                    : "an id >= 0";
    fail(ErrorCode::kInvalidFile, "{}: expected {}", place(), expected);
  }

  bool number(std::int64_t integer, double real) {
    if (mode_ == Mode::kVocab) {
      if (integer < 0 || integer > std::numeric_limits<std::int32_t>::max()) bad();
      add_token(std::move(key_), static_cast<std::int32_t>(integer));
    } else if (mode_ == Mode::kScores && row_ == 1) {
      tables_.scores.push_back(real);
      ++row_;
    } else {
      bad();
    }
    return true;
  }
  void add_token(std::string content, std::int32_t id) {
    if (tables_.vocab.size() >= kMaxEntries)
      fail(ErrorCode::kInvalidFile, "{}: more than {} tokens", source_, kMaxEntries);
    tables_.vocab.push_back({std::move(content), id});
  }
  void add_merge(std::pair<std::string, std::string> merge) {
    if (tables_.merges.size() >= kMaxEntries)
      fail(ErrorCode::kInvalidFile, "{}: more than {} merges", source_, kMaxEntries);
    tables_.merges.push_back(std::move(merge));
  }

  // The tree.
  Json* put(Json&& v) {
    if (stack_.empty()) {
      root_ = std::move(v);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(v));
      return &parent.back();
    }
    return &(parent[key_] = std::move(v));
  }
  bool value(Json&& v) {
    if (mode_ != Mode::kTree) bad();
    put(std::move(v));
    return true;
  }
  bool open(Json&& v) {
    if (stack_.size() >= kMaxDepth)
      fail(ErrorCode::kInvalidFile, "{}: JSON nested deeper than {} levels", source_, kMaxDepth);
    if (stack_.size() == 1) model_key_ = key_;
    stack_.push_back(put(std::move(v)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  std::string_view source_;
  ModelTables& tables_;
  bool root_is_vocab_;
  Json root_;
  std::vector<Json*> stack_;
  std::string key_;
  std::string model_key_;  // the root's member that is open
  Mode mode_ = Mode::kTree;
  std::size_t row_ = kNoRow;  // how many items of a row are there
  std::string first_;
  std::string second_;
};

Json run(std::string_view text, std::string_view source, ModelTables& tables, bool root_is_vocab) {
  TableReader reader(source, tables, root_is_vocab);
  Json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

}  // namespace

Json parse_with_tables(std::string_view text, std::string_view source, ModelTables& tables) {
  return run(text, source, tables, false);
}

void parse_vocab_json(std::string_view text, std::string_view source, ModelTables& tables) {
  run(text, source, tables, true);
  if (!tables.has_vocab) fail(ErrorCode::kInvalidFile, "{}: expected an object of tokens and ids", source);
}

std::pair<std::string, std::string> split_merge(std::string_view text, std::string_view where) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
    fail(ErrorCode::kInvalidFile, "{}: expected two tokens with one space between, got \"{}\"", where,
         text.substr(0, 80));
  return {std::string(text.substr(0, space)), std::string(text.substr(space + 1))};
}

}  // namespace triptych
