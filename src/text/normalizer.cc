#include "text/normalizer.h"

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/base64.h"
#include "text/byte_level.h"
#include "text/charsmap.h"
#include "text/regex.h"
#include "unicode/properties.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

// Replaces each character by what `map` appends to its output; `map` returns false to keep the character.
template <typename Map>
void map_characters(NormalizedText& t, Map&& map) {
  NormalizedBuilder out(t);
  std::string mapped;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < t.text.size();) {
    const std::size_t start = i;
    const char32_t c = utf8::next(t.text, i);
    mapped.clear();
    if (!map(c, mapped)) continue;
    out.keep(kept, start);
    out.insert(mapped, start);
    kept = i;
  }
  if (kept == 0) return;
  out.keep(kept, t.text.size());
  out.finish();
}

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  void apply(NormalizedText& t) const override {
    for (const auto& part : parts_) part->apply(t);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

class FormNormalizer final : public Normalizer {
 public:
  explicit FormNormalizer(unicode::Form form) : form_(form) {}
  void apply(NormalizedText& t) const override {
    if (utf8::is_ascii(t.text)) return;
    NormalizedBuilder out(t);
    std::size_t kept = 0;   // copied up to here
    std::size_t start = 0;  // of the run that an inert character opens
    bool changed = false;
    for (std::size_t i = 0; i < t.text.size();) {
      const std::size_t at = i;
      if (unicode::is_inert(form_, utf8::next(t.text, i))) {
        start = at;
        continue;
      }
      while (i < t.text.size()) {
        std::size_t after = i;
        if (unicode::is_inert(form_, utf8::next(t.text, after))) break;
        i = after;
      }
      const std::string_view run = std::string_view(t.text).substr(start, i - start);
      const std::string normal = unicode::normalize(form_, run);
      if (normal != run) {
        out.keep(kept, start);
        out.insert(normal, start);
        kept = i;
        changed = true;
      }
      start = i;
    }
    if (!changed) return;
    out.keep(kept, t.text.size());
    out.finish();
  }

 private:
  unicode::Form form_;
};

class LowercaseNormalizer final : public Normalizer {
 public:
  void apply(NormalizedText& t) const override {
    map_characters(t, [](char32_t c, std::string& out) {
      unicode::append_lower(out, c);
      return true;
    });
  }
};

class StripNormalizer final : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  void apply(NormalizedText& t) const override {
    std::size_t begin = 0;
    std::size_t end = t.text.size();
    while (left_ && begin < end) {
      std::size_t next = begin;
      if (!unicode::is_white_space(utf8::next(t.text, next))) break;
      begin = next;
    }
    while (right_ && end > begin) {
      const std::size_t last = utf8::previous(t.text, end);
      std::size_t i = last;
      if (!unicode::is_white_space(utf8::next(t.text, i))) break;
      end = last;
    }
    if (begin == 0 && end == t.text.size()) return;
    NormalizedBuilder out(t);
    out.keep(begin, end);
    out.finish();
  }

 private:
  bool left_;
  bool right_;
};

class StripAccentsNormalizer final : public Normalizer {
 public:
  void apply(NormalizedText& t) const override {
    map_characters(t, [](char32_t c, std::string&) { return unicode::is_mark(c); });
  }
};

class ReplaceNormalizer final : public Normalizer {
 public:
  ReplaceNormalizer(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(NormalizedText& t) const override {
    if (t.text.empty()) return;
    NormalizedBuilder out(t);
    std::size_t kept = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
    bool any = false;
    for (Regex::Matches matches(pattern_, t.text); matches.next(begin, end);) {
      out.keep(kept, begin);
      // The reference aligns the replacement with the last character that was matched.
      out.insert(content_, end == 0 ? 0 : end - 1);
      kept = end;
      any = true;
    }
    if (!any) return;
    out.keep(kept, t.text.size());
    out.finish();
  }

 private:
  Regex pattern_;
  std::string content_;
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(NormalizedText& t) const override {
    if (t.text.empty()) return;
    NormalizedBuilder out(t);
    out.insert(prefix_, 0);
    out.keep(0, t.text.size());
    out.finish();
  }

 private:
  std::string prefix_;
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  void apply(NormalizedText& t) const override {
    map_characters(t, [](char32_t c, std::string& out) {
      byte_level::append_encoded(out, utf8::from_code_point(c));
      return true;
    });
  }
};

class NmtNormalizer final : public Normalizer {
 public:
  void apply(NormalizedText& t) const override {
    map_characters(t, [](char32_t c, std::string& out) {
      if ((c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F)
        return true;
      if (c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
          c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD) {
        out.push_back(' ');
        return true;
      }
      return false;
    });
  }
};

class PrecompiledNormalizer final : public Normalizer {
 public:
  explicit PrecompiledNormalizer(Charsmap map) : map_(std::move(map)) {}
  // The reference looks a whole grapheme cluster of less than six bytes up first, then its characters one by
  // one.
  void apply(NormalizedText& t) const override {
    NormalizedBuilder out(t);
    const std::string_view text = t.text;
    for (std::size_t i = 0; i < text.size();) {
      std::size_t end = i;
      char32_t left = utf8::next(text, end);
      int state = 0;
      while (end < text.size()) {
        std::size_t after = end;
        const char32_t right = utf8::next(text, after);
        if (!unicode::joins_grapheme(left, right, state)) break;
        left = right;
        end = after;
      }
      const auto whole = end - i < 6 ? map_.shortest(text.substr(i, end - i)) : std::nullopt;
      if (whole) {
        out.insert(*whole, i);
        i = end;
      }
      while (i < end) {
        const std::size_t n = utf8::length_of(text[i]);
        if (const auto part = map_.shortest(text.substr(i, n)))
          out.insert(*part, i);
        else
          out.keep(i, i + n);
        i += n;
      }
    }
    out.finish();
  }

 private:
  Charsmap map_;
};

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

struct BertNormalizerOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(const BertNormalizerOptions& options) : options_(options) {}
  void apply(NormalizedText& t) const override {
    if (options_.clean_text) clean(t);
    if (options_.handle_chinese_chars) {
      map_characters(t, [](char32_t c, std::string& out) {
        if (!is_chinese(c)) return false;
        out.push_back(' ');
        utf8::append(out, c);
        out.push_back(' ');
        return true;
      });
    }
    if (options_.strip_accents) {
      nfd_.apply(t);
      map_characters(t, [](char32_t c, std::string&) { return unicode::is_nonspacing_mark(c); });
    }
    if (options_.lowercase) lowercase_.apply(t);
  }

 private:
  static void clean(NormalizedText& t) {
    map_characters(t, [](char32_t c, std::string& out) {
      if (c == '\t' || c == '\n' || c == '\r') {
        out.push_back(' ');
        return true;
      }
      if (c == 0 || c == 0xFFFD || unicode::is_other(c)) return true;
      if (c == ' ' || !unicode::is_white_space(c)) return false;
      out.push_back(' ');
      return true;
    });
  }

  BertNormalizerOptions options_;
  FormNormalizer nfd_{unicode::Form::kNfd};
  LowercaseNormalizer lowercase_;
};

std::unique_ptr<Normalizer> parse_replace(const JsonView& view) {
  const JsonView pattern = view.at("pattern");
  std::string content = view.at("content").as_string();
  if (const auto text = pattern.find("String"))
    return std::make_unique<ReplaceNormalizer>(Regex::literal(text->as_string(), text->path()),
                                               std::move(content));
  const JsonView regex = pattern.at("Regex");
  return std::make_unique<ReplaceNormalizer>(Regex::oniguruma(regex.as_string(), regex.path()),
                                             std::move(content));
}

std::unique_ptr<Normalizer> parse_bert(const JsonView& view) {
  BertNormalizerOptions options;
  options.clean_text = view.get_bool("clean_text", true);
  options.handle_chinese_chars = view.get_bool("handle_chinese_chars", true);
  options.lowercase = view.get_bool("lowercase", true);
  options.strip_accents = view.get_bool("strip_accents", options.lowercase);
  return std::make_unique<BertNormalizer>(options);
}

}  // namespace

std::unique_ptr<Normalizer> parse_normalizer(const JsonView& view) {
  if (view.is_null()) return nullptr;
  const std::string type = view.at("type").as_string();
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> parts;
    for (const JsonView& item : view.at("normalizers").items()) {
      auto part = parse_normalizer(item);
      if (part == nullptr) item.fail_expected("a normalizer");
      parts.push_back(std::move(part));
    }
    return std::make_unique<SequenceNormalizer>(std::move(parts));
  }
  if (type == "NFC") return std::make_unique<FormNormalizer>(unicode::Form::kNfc);
  if (type == "NFD") return std::make_unique<FormNormalizer>(unicode::Form::kNfd);
  if (type == "NFKC") return std::make_unique<FormNormalizer>(unicode::Form::kNfkc);
  if (type == "NFKD") return std::make_unique<FormNormalizer>(unicode::Form::kNfkd);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "Strip")
    return std::make_unique<StripNormalizer>(view.get_bool("strip_left", true),
                                             view.get_bool("strip_right", true));
  if (type == "StripAccents") return std::make_unique<StripAccentsNormalizer>();
  if (type == "Nmt") return std::make_unique<NmtNormalizer>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Prepend") return std::make_unique<PrependNormalizer>(view.at("prepend").as_string());
  if (type == "Replace") return parse_replace(view);
  if (type == "BertNormalizer" || type == "Bert") return parse_bert(view);
  if (type == "Precompiled") {
    const JsonView field = view.at("precompiled_charsmap");
    const auto blob = base64_decode(field.as_string());
    if (!blob) field.fail_expected("base64");
    return std::make_unique<PrecompiledNormalizer>(Charsmap(*blob, field.path()));
  }
  fail(ErrorCode::kUnsupported, "{}: normalizer type \"{}\" is not supported", view.path(), type);
}

}  // namespace triptych
