#include "text/decode_stages.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/byte_level.h"

namespace triptych {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kCleanup = {{
    {" .", "."},
    {" ?", "?"},
    {" !", "!"},
    {" ,", ","},
    {" ' ", "'"},
    {" n't", "n't"},
    {" 'm", "'m"},
    {" 's", "'s"},
    {" 've", "'ve"},
    {" 're", "'re"},
}};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string out;
  std::size_t kept = 0;
  for (; at != std::string::npos; at = text.find(from, kept)) {
    out.append(text, kept, at - kept).append(to);
    kept = at + from.size();
  }
  out.append(text, kept);
  text = std::move(out);
}

}  // namespace

int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    if (c >= '0' && c <= '9')
      value = value * 16 + (c - '0');
    else if ((c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f'))
      value = value * 16 + ((c | 32) - 'a' + 10);
    else
      return -1;
  }
  return value;
}

void WholeTokenStage::end_token() {
  on_token(token_);
  token_.clear();
}

void WholeTokenStage::emit(std::string_view token) {
  next().text(token);
  next().end_token();
}

void ByteLevelStage::on_token(std::string& token) {
  const auto bytes = byte_level::decode(token);
  std::string out;
  stream_.push(bytes ? *bytes : token, out);
  next().text(out);
}

void ByteLevelStage::finish() {
  std::string out;
  stream_.finish(out);
  next().text(out);
  next().end_token();
  next().finish();
}

void ByteFallbackStage::on_token(std::string& token) {
  const int byte = fallback_byte(token);
  if (byte < 0) {
    close_run();
    emit(token);
    return;
  }
  in_run_ = true;
  std::string out;
  const char c = static_cast<char>(byte);
  stream_.push(std::string_view(&c, 1), out);
  if (!out.empty()) next().text(out);
}

void ByteFallbackStage::close_run() {
  if (!in_run_) return;
  in_run_ = false;
  std::string out;
  stream_.finish(out);
  if (!out.empty()) next().text(out);
  next().end_token();
}

void ByteFallbackStage::finish() {
  close_run();
  next().finish();
}

void FuseStage::finish() {
  next().end_token();
  next().finish();
}

StripStage::StripStage(TokenSink& sink, std::string content, std::size_t start, std::size_t stop)
    : DecodeStage(sink), content_(std::move(content)), start_(start), stop_(stop) {}

void StripStage::text(std::string_view fragment) {
  while (at_front_ && !fragment.empty()) {
    if (n_front_ >= start_ || !fragment.starts_with(content_)) {
      at_front_ = false;
      break;
    }
    ++n_front_;
    fragment.remove_prefix(content_.size());
  }
  if (fragment.empty()) return;
  held_.append(fragment);
  // The last `stop` copies may have to go.
  std::size_t keep = held_.size();
  for (std::size_t n = 0; n < stop_ && std::string_view(held_).substr(0, keep).ends_with(content_); ++n)
    keep -= content_.size();
  if (keep == 0) return;
  next().text(std::string_view(held_).substr(0, keep));
  held_.erase(0, keep);
}

void StripStage::end_token() {
  held_.clear();
  at_front_ = true;
  n_front_ = 0;
  next().end_token();
}

ReplaceStage::ReplaceStage(TokenSink& sink, std::shared_ptr<const Regex> pattern, std::string content)
    : WholeTokenStage(sink), pattern_(std::move(pattern)), content_(std::move(content)) {}

std::string ReplaceStage::replaced(std::string_view token, const Regex& pattern, std::string_view content) {
  std::string out;
  std::size_t kept = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  for (Regex::Matches matches(pattern, token); !token.empty() && matches.next(begin, end);) {
    out.append(token, kept, begin - kept).append(content);
    kept = end;
  }
  return out.append(token, kept);
}

void ReplaceStage::on_token(std::string& token) { emit(replaced(token, *pattern_, content_)); }

MetaspaceStage::MetaspaceStage(TokenSink& sink, std::string replacement, bool prepends)
    : DecodeStage(sink), replacement_(std::move(replacement)), first_(prepends) {}

void MetaspaceStage::text(std::string_view fragment) {
  std::string out;
  for (std::size_t at = 0; at < fragment.size();) {
    if (fragment.substr(at).starts_with(replacement_)) {
      if (!first_) out.push_back(' ');
      at += replacement_.size();
    } else {
      out.push_back(fragment[at++]);
    }
  }
  next().text(out);
}

void MetaspaceStage::end_token() {
  first_ = false;
  next().end_token();
}

WordPieceStage::WordPieceStage(TokenSink& sink, std::string prefix, bool cleanup)
    : WholeTokenStage(sink), prefix_(std::move(prefix)), cleanup_(cleanup) {}

void WordPieceStage::on_token(std::string& token) {
  if (!first_) {
    if (token.starts_with(prefix_))
      token.erase(0, prefix_.size());
    else
      token.insert(token.begin(), ' ');
  }
  first_ = false;
  if (cleanup_) {
    for (const auto& [from, to] : kCleanup) {
      replace_all(token, from, to);
      // The reference's WordPiece has one rule more, here in its order.
      if (from == " 'm") replace_all(token, " do not", " don't");
    }
  }
  emit(token);
}

BpeSuffixStage::BpeSuffixStage(TokenSink& sink, std::string suffix)
    : WholeTokenStage(sink), suffix_(std::move(suffix)) {}

void BpeSuffixStage::on_token(std::string& token) {
  if (has_held_) put(" ");
  held_ = token;
  has_held_ = true;
}

void BpeSuffixStage::put(std::string_view replacement) {
  if (!suffix_.empty()) replace_all(held_, suffix_, replacement);
  emit(held_);
}

void BpeSuffixStage::finish() {
  if (has_held_) put("");
  next().finish();
}

void JoinStage::open() {
  if (!is_open_ && !first_) next().text(" ");
  is_open_ = true;
}

void JoinStage::text(std::string_view fragment) {
  open();
  next().text(fragment);
}

void JoinStage::end_token() {
  open();
  is_open_ = false;
  first_ = false;
  next().end_token();
}

void CleanupStage::text(std::string_view fragment) {
  held_.append(fragment);
  // Certain is all before the end of the last kReach bytes in a row without a space. Older text has no such
  // row.
  const std::size_t oldest = held_.size() - std::min(held_.size(), fragment.size() + kReach);
  std::size_t row = 0;
  std::size_t cut = 0;
  for (std::size_t at = held_.size(); at > oldest && cut == 0; --at) {
    row = held_[at - 1] == ' ' ? 0 : row + 1;
    if (row == kReach) cut = at - 1 + kReach;
  }
  if (cut == 0) return;
  // Whole characters only.
  while (cut < held_.size() && (static_cast<unsigned char>(held_[cut]) & 0xC0) == 0x80) ++cut;
  flush(cut);
}

void CleanupStage::finish() {
  flush(held_.size());
  next().end_token();
  next().finish();
}

void CleanupStage::flush(std::size_t n) {
  std::string part = held_.substr(0, n);
  held_.erase(0, n);
  for (const auto& [from, to] : kCleanup) replace_all(part, from, to);
  next().text(part);
}

}  // namespace triptych
