#include "text/added_vocabulary.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "text/regex.h"
#include "unicode/properties.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr std::size_t kMaxContentBytes = 4096;
constexpr std::size_t kMaxTokens = 1 << 20;
constexpr std::int32_t kIdFloor = 1 << 20;

// Rust's \w: Alphabetic, M, Nd, Pc and the two joiners.
bool is_word_character(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  static const Regex word =
      Regex::oniguruma(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}])", "added tokens");
  const std::string text = utf8::from_code_point(c);
  std::size_t begin = 0;
  std::size_t end = 0;
  return Regex::Matches(word, text).next(begin, end);
}

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  std::size_t i = utf8::previous(text, text.size());
  return is_word_character(utf8::next(text, i));
}

bool starts_with_word(std::string_view text) {
  std::size_t i = 0;
  return !text.empty() && is_word_character(utf8::next(text, i));
}

// Start of the white space that ends the text.
std::size_t trailing_space(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t last = utf8::previous(text, end);
    std::size_t i = last;
    if (!unicode::is_white_space(utf8::next(text, i))) break;
    end = last;
  }
  return end;
}

// Length of the white space that starts the text.
std::size_t leading_space(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size()) {
    std::size_t i = end;
    if (!unicode::is_white_space(utf8::next(text, i))) break;
    end = i;
  }
  return end;
}

}  // namespace

void AddedVocabulary::add(std::span<const AddedToken> tokens, Ids ids, const Vocab& model,
                          const Normalizer* normalizer, std::string_view where) {
  // As the reference numbers them: after the model's count of tokens, or after the largest added id beyond
  // it.
  std::int32_t next_id = static_cast<std::int32_t>(model.size());
  for (const auto& [id, entry] : by_id_) next_id = std::max(next_id, id + 1);
  for (const AddedToken& given : tokens) {
    if (given.content.empty()) continue;
    if (given.content.size() > kMaxContentBytes || !utf8::is_valid(given.content))
      fail(ErrorCode::kInvalidFile, "{}: an added token of {} bytes: expected UTF-8 of at most {} bytes",
           where, given.content.size(), kMaxContentBytes);
    if (by_id_.size() >= kMaxTokens)
      fail(ErrorCode::kInvalidFile, "{}: more than {} added tokens", where, kMaxTokens);
    std::int32_t id = find(given.content);
    if (id < 0) id = model.find(given.content);
    if (id < 0 && ids == Ids::kAsGiven && given.id >= 0) {
      const std::int32_t limit = std::max(kIdFloor, 8 * static_cast<std::int32_t>(model.size()));
      if (given.id >= limit || find(given.id) != nullptr || model.has_id(given.id))
        fail(ErrorCode::kInvalidFile, "{}: added token \"{}\" has id {}: expected a free one in [0, {})",
             where, given.content, given.id, limit);
      id = given.id;
      next_id = std::max(next_id, id + 1);
    }
    if (id < 0) {
      while (model.has_id(next_id) && ids == Ids::kAsGiven) ++next_id;
      id = next_id++;
    }
    if (given.id >= 0 && given.id != id)
      log_warning("{}: added token \"{}\" says id {}, but gets {}", where, given.content, given.id, id);
    Entry entry{given, given.content};
    entry.token.id = id;
    if (given.normalized && normalizer != nullptr) {
      NormalizedText text = NormalizedText::of(given.content, 0, false);
      normalizer->apply(text);
      if (text.text.empty())
        fail(ErrorCode::kUnsupported, "{}: added token \"{}\" is normalised to nothing", where,
             given.content);
      entry.matched = std::move(text.text);
    }
    // A content that was special once stays so.
    if (const AddedToken* old = find(id); old != nullptr && old->content == given.content && old->special)
      entry.token.special = true;
    if (const AddedToken* old = find(id); old != nullptr && old->content != given.content)
      by_content_.erase(old->content);
    by_content_[given.content] = id;
    by_id_[id] = std::move(entry);
    id_limit_ = std::max(id_limit_, id + 1);
  }
}

void AddedVocabulary::build() {
  std::vector<Trie::Key> raw;
  std::vector<Trie::Key> normalized;
  for (const auto& [id, entry] : by_id_)
    (entry.token.normalized ? normalized : raw).emplace_back(entry.matched, id);
  const auto fill = [](Set& set, std::vector<Trie::Key> keys) {
    // Equal contents (two tokens normalised alike): the smallest id, whatever the table's order.
    std::sort(keys.begin(), keys.end(), [](const Trie::Key& a, const Trie::Key& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    set.first_bytes.assign(256, false);
    for (const auto& key : keys)
      if (!key.first.empty()) set.first_bytes[static_cast<unsigned char>(key.first[0])] = true;
    set.trie = Trie(std::move(keys));
  };
  fill(raw_, std::move(raw));
  fill(normalized_, std::move(normalized));
}

void AddedVocabulary::split(const Set& set, std::string_view text, const Filter* filter,
                            std::vector<Segment>& out) const {
  if (set.trie.empty()) {
    if (!text.empty()) out.push_back({0, text.size(), -1});
    return;
  }
  std::size_t done = 0;  // what segments cover so far
  for (std::size_t at = 0; at < text.size();) {
    if (!set.first_bytes[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    std::size_t length = 0;
    std::int32_t id = -1;
    set.trie.prefixes(text.substr(at), [&](std::size_t n, std::int32_t found) {
      if (filter != nullptr && !(*filter)(found, at, at + n)) return;
      length = n;
      id = found;
    });
    if (id < 0) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + length;
    at = end;
    const AddedToken& token = by_id_.at(id).token;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end))))
      continue;
    if (token.lstrip) begin = std::max(trailing_space(text.substr(0, begin)), done);
    if (token.rstrip) end += leading_space(text.substr(end));
    if (done < begin) out.push_back({done, begin, -1});
    // A token whose text an earlier one's flags have eaten is dropped.
    if (begin < end) out.push_back({begin, end, id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
}

const AddedToken* AddedVocabulary::find(std::int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &it->second.token;
}

std::int32_t AddedVocabulary::find(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  return it == by_content_.end() ? -1 : it->second;
}

std::string_view AddedVocabulary::decoded_content(std::int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? std::string_view() : std::string_view(it->second.matched);
}

bool AddedVocabulary::is_special(std::int32_t id) const {
  const AddedToken* token = find(id);
  return token != nullptr && token->special;
}

std::vector<AddedToken> AddedVocabulary::tokens() const {
  std::vector<AddedToken> out;
  out.reserve(by_id_.size());
  for (const auto& [id, entry] : by_id_) out.push_back(entry.token);
  std::sort(out.begin(), out.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return out;
}

}  // namespace triptych
