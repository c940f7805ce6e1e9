#include "text/pre_tokenizer.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "text/byte_level.h"
#include "text/pre_tokenizer_split.h"
#include "text/regex.h"
#include "unicode/properties.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

// Writes every piece anew: `write(piece, at_start, out)` appends the new form.
template <typename Write>
void rewrite_pieces(PieceList& list, Write&& write) {
  std::string text;
  text.reserve(list.text.size() + list.text.size() / 2);
  for (std::size_t i = 0; i < list.pieces.size(); ++i) {
    const std::string_view old = list[i];
    const auto begin = text.size();
    write(old, list.pieces[i].at_start, text);
    if (text.size() > std::numeric_limits<std::uint32_t>::max())
      fail(ErrorCode::kInvalidArgument, "a text of more than 4 GiB cannot be tokenised");
    list.pieces[i].begin = static_cast<std::uint32_t>(begin);
    list.pieces[i].end = static_cast<std::uint32_t>(text.size());
  }
  list.text = std::move(text);
  list.origin.clear();
}

class SequencePreTokenizer final : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> parts)
      : parts_(std::move(parts)) {}
  void apply(PieceList& list) const override {
    for (const auto& part : parts_) part->apply(list);
  }
  bool needs_start() const override {
    for (const auto& part : parts_)
      if (part->needs_start()) return true;
    return false;
  }
  double max_growth() const override {
    double growth = 1;
    for (const auto& part : parts_) growth *= part->max_growth();
    return growth;
  }
  bool long_pieces() const override {
    for (const auto& part : parts_)
      if (!part->long_pieces()) return false;
    return true;
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

class ByteLevelPreTokenizer final : public PreTokenizer {
 public:
  ByteLevelPreTokenizer(bool add_prefix_space, bool use_regex, std::string_view where)
      : add_prefix_space_(add_prefix_space),
        use_regex_(use_regex),
        pattern_(Regex::oniguruma(byte_level::kPattern, where)) {}
  void apply(PieceList& list) const override {
    if (add_prefix_space_) {
      rewrite_pieces(list, [](std::string_view piece, bool, std::string& out) {
        if (!piece.empty() && piece.front() != ' ') out.push_back(' ');
        out.append(piece);
      });
    }
    if (use_regex_) {
      split_pieces(list, SplitBehavior::kIsolated, [&](std::string_view piece, std::vector<Stretch>& out) {
        regex_stretches(pattern_, false, piece, out);
      });
    }
    rewrite_pieces(
        list, [](std::string_view piece, bool, std::string& out) { byte_level::append_encoded(out, piece); });
  }
  double max_growth() const override { return add_prefix_space_ ? 4 : 2; }  // characters of the byte alphabet
  bool long_pieces() const override { return !use_regex_; }

 private:
  bool add_prefix_space_;
  bool use_regex_;
  Regex pattern_;
};

enum class PrependScheme { kAlways, kFirst, kNever };

class MetaspacePreTokenizer final : public PreTokenizer {
 public:
  MetaspacePreTokenizer(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}
  void apply(PieceList& list) const override {
    rewrite_pieces(list, [&](std::string_view piece, bool at_start, std::string& out) {
      if (piece.empty()) return;
      const bool has_space = piece.front() == ' ' || piece.starts_with(replacement_);
      if (!has_space && (scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && at_start)))
        out.append(replacement_);
      for (std::size_t from = 0;;) {
        const std::size_t space = piece.find(' ', from);
        out.append(piece.substr(from, space - from));
        if (space == std::string_view::npos) break;
        out.append(replacement_);
        from = space + 1;
      }
    });
    if (!split_) return;
    split_pieces(
        list, SplitBehavior::kMergedWithNext, [&](std::string_view piece, std::vector<Stretch>& out) {
          std::size_t last = 0;
          for (std::size_t at = piece.find(replacement_); at != std::string_view::npos;
               at = piece.find(replacement_, last)) {
            if (last < at)
              out.push_back({static_cast<std::uint32_t>(last), static_cast<std::uint32_t>(at), false});
            last = at + replacement_.size();
            out.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(last), true});
          }
          if (last < piece.size())
            out.push_back(
                {static_cast<std::uint32_t>(last), static_cast<std::uint32_t>(piece.size()), false});
        });
  }
  bool needs_start() const override { return scheme_ == PrependScheme::kFirst; }
  double max_growth() const override { return 1 + static_cast<double>(replacement_.size()); }
  bool long_pieces() const override { return !split_; }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

class SplitPreTokenizer final : public PreTokenizer {
 public:
  SplitPreTokenizer(Regex pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(PieceList& list) const override {
    split_pieces(list, behavior_, [&](std::string_view piece, std::vector<Stretch>& out) {
      regex_stretches(pattern_, invert_, piece, out);
    });
  }

 private:
  Regex pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Splits at single characters with a property.
class CharacterPreTokenizer final : public PreTokenizer {
 public:
  using Predicate = bool (*)(char32_t, char32_t argument);
  CharacterPreTokenizer(Predicate is_delimiter, char32_t argument, SplitBehavior behavior)
      : is_delimiter_(is_delimiter), argument_(argument), behavior_(behavior) {}
  void apply(PieceList& list) const override {
    split_pieces(list, behavior_, [&](std::string_view piece, std::vector<Stretch>& out) {
      character_stretches([&](char32_t c) { return is_delimiter_(c, argument_); }, piece, out);
    });
  }

 private:
  Predicate is_delimiter_;
  char32_t argument_;
  SplitBehavior behavior_;
};

class FixedLengthPreTokenizer final : public PreTokenizer {
 public:
  explicit FixedLengthPreTokenizer(std::size_t n_characters) : n_characters_(n_characters) {}
  void apply(PieceList& list) const override {
    split_pieces(list, SplitBehavior::kIsolated, [&](std::string_view piece, std::vector<Stretch>& out) {
      for (std::size_t i = 0; i < piece.size();) {
        const std::size_t start = i;
        for (std::size_t k = 0; k < n_characters_ && i < piece.size(); ++k) i += utf8::length_of(piece[i]);
        out.push_back({static_cast<std::uint32_t>(start), static_cast<std::uint32_t>(i), true});
      }
    });
  }

 private:
  std::size_t n_characters_;
};

std::unique_ptr<PreTokenizer> bert() {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  parts.push_back(std::make_unique<CharacterPreTokenizer>(
      [](char32_t c, char32_t) { return unicode::is_white_space(c); }, U'\0', SplitBehavior::kRemoved));
  parts.push_back(std::make_unique<CharacterPreTokenizer>(
      [](char32_t c, char32_t) { return unicode::is_punctuation(c); }, U'\0', SplitBehavior::kIsolated));
  return std::make_unique<SequencePreTokenizer>(std::move(parts));
}

Regex parse_pattern(const JsonView& view) {
  if (const auto text = view.find("String")) return Regex::literal(text->as_string(), text->path());
  const JsonView regex = view.at("Regex");
  return Regex::oniguruma(regex.as_string(), regex.path());
}

std::string one_character(const JsonView& view) {
  std::string text = view.as_string();
  if (text.empty() || utf8::length_of(text[0]) != text.size()) view.fail_expected("one character");
  return text;
}

std::unique_ptr<PreTokenizer> parse_metaspace(const JsonView& view) {
  PrependScheme scheme = PrependScheme::kAlways;
  const std::string name = view.get_string("prepend_scheme", "always");
  if (name == "first")
    scheme = PrependScheme::kFirst;
  else if (name == "never")
    scheme = PrependScheme::kNever;
  else if (name != "always")
    view.at("prepend_scheme").fail_expected("always, first or never");
  // Older files say add_prefix_space instead.
  if (const auto add = view.find("add_prefix_space"); add && !add->as_bool()) {
    if (view.has("prepend_scheme") && scheme != PrependScheme::kNever)
      fail(ErrorCode::kInvalidFile, "{}: add_prefix_space false contradicts prepend_scheme \"{}\"",
           view.path(), name);
    scheme = PrependScheme::kNever;
  }
  return std::make_unique<MetaspacePreTokenizer>(one_character(view.at("replacement")), scheme,
                                                 view.get_bool("split", true));
}

std::unique_ptr<PreTokenizer> parse_character_split(const JsonView& view, const std::string& type) {
  if (type == "WhitespaceSplit")
    return std::make_unique<CharacterPreTokenizer>(
        [](char32_t c, char32_t) { return unicode::is_white_space(c); }, U'\0', SplitBehavior::kRemoved);
  if (type == "Punctuation")
    return std::make_unique<CharacterPreTokenizer>(
        [](char32_t c, char32_t) { return unicode::is_punctuation(c); }, U'\0',
        view.has("behavior") ? parse_split_behavior(view.at("behavior")) : SplitBehavior::kIsolated);
  if (type == "Digits")
    return std::make_unique<CharacterPreTokenizer>(
        [](char32_t c, char32_t) { return unicode::is_numeric(c); }, U'\0',
        view.get_bool("individual_digits", false) ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  std::size_t i = 0;
  const std::string delimiter = one_character(view.at("delimiter"));
  return std::make_unique<CharacterPreTokenizer>([](char32_t c, char32_t wanted) { return c == wanted; },
                                                 utf8::next(delimiter, i), SplitBehavior::kRemoved);
}

// One stage, or a sequence of them.
std::unique_ptr<PreTokenizer> parse_stage(const JsonView& view) {
  if (view.is_null()) return nullptr;
  const std::string type = view.at("type").as_string();
  if (type == "Sequence") {
    std::vector<std::unique_ptr<PreTokenizer>> parts;
    for (const JsonView& item : view.at("pretokenizers").items()) {
      auto part = parse_stage(item);
      if (part == nullptr) item.fail_expected("a pre-tokenizer");
      parts.push_back(std::move(part));
    }
    return std::make_unique<SequencePreTokenizer>(std::move(parts));
  }
  if (type == "ByteLevel")
    return std::make_unique<ByteLevelPreTokenizer>(view.get_bool("add_prefix_space", true),
                                                   view.get_bool("use_regex", true), view.path());
  if (type == "Metaspace") return parse_metaspace(view);
  if (type == "Split")
    return std::make_unique<SplitPreTokenizer>(parse_pattern(view.at("pattern")),
                                               parse_split_behavior(view.at("behavior")),
                                               view.get_bool("invert", false));
  if (type == "Whitespace")
    // Rust's \w+|[^\w\s]+, whose \w also has the joiners.
    return std::make_unique<SplitPreTokenizer>(
        Regex::oniguruma(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+)"
                         R"(|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)",
                         view.path()),
        SplitBehavior::kRemoved, true);
  if (type == "WhitespaceSplit" || type == "Punctuation" || type == "Digits" || type == "CharDelimiterSplit")
    return parse_character_split(view, type);
  if (type == "BertPreTokenizer") return bert();
  if (type == "FixedLength")
    return std::make_unique<FixedLengthPreTokenizer>(
        static_cast<std::size_t>(view.get_int("length", 5, 1, std::numeric_limits<std::int32_t>::max())));
  fail(ErrorCode::kUnsupported, "{}: pre_tokenizer type \"{}\" is not supported", view.path(), type);
}

}  // namespace

std::unique_ptr<PreTokenizer> parse_pre_tokenizer(const JsonView& view) {
  std::unique_ptr<PreTokenizer> out = parse_stage(view);
  constexpr double kMaxGrowth = 64;  // published files reach 4
  if (out != nullptr && out->max_growth() > kMaxGrowth)
    fail(ErrorCode::kInvalidFile,
         "{}: expected stages that make a text at most {} times as long, these reach {}", view.path(),
         kMaxGrowth, out->max_growth());
  return out;
}

}  // namespace triptych
