#include "jinja/marked_string.h"

#include <algorithm>

namespace triptych::jinja {

MarkedString::MarkedString(std::string text, Origin origin) : text_(std::move(text)) {
  if (origin != kTemplateOrigin && !text_.empty()) runs_.push_back({text_.size(), origin});
}

std::size_t MarkedString::find_run(std::size_t byte) const {
  const auto it = std::upper_bound(runs_.begin(), runs_.end(), byte,
                                   [](std::size_t value, const Run& run) { return value < run.end; });
  return static_cast<std::size_t>(it - runs_.begin());
}

/// Extends the marks to `end` after bytes were appended.
void MarkedString::mark(std::size_t end, Origin origin) {
  const std::size_t begin = runs_.empty() ? 0 : runs_.back().end;
  if (end == begin) return;
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end = end;
  } else {
    runs_.push_back({end, origin});
  }
}

void MarkedString::append(std::string_view text, Origin origin) {
  if (text.empty()) return;
  if (runs_.empty() && origin == kTemplateOrigin) {
    text_.append(text);
    return;
  }
  if (runs_.empty()) mark(text_.size(), kTemplateOrigin);
  text_.append(text);
  mark(text_.size(), origin);
}

void MarkedString::append(const MarkedString& other, std::size_t begin, std::size_t end) {
  end = std::min(end, other.size());
  if (begin >= end) return;
  if (&other == this) {  // appending to itself: the runs would move under the loop
    const MarkedString copy = other.slice(begin, end);
    append(copy);
    return;
  }
  other.for_each_run(begin, end, [&](std::size_t from, std::size_t to, Origin origin) {
    append(other.view().substr(from, to - from), origin);
  });
}

MarkedString MarkedString::slice(std::size_t begin, std::size_t end) const {
  MarkedString out;
  for_each_run(begin, std::min(end, size()), [&](std::size_t from, std::size_t to, Origin origin) {
    out.append(view().substr(from, to - from), origin);
  });
  return out;
}

void MarkedString::truncate(std::size_t size) {
  if (size >= text_.size()) return;
  text_.resize(size);
  if (runs_.empty()) return;
  const std::size_t last = size == 0 ? 0 : find_run(size - 1) + 1;
  runs_.resize(last, Run{0, 0});
  if (!runs_.empty()) runs_.back().end = size;
}

MarkedString::Run MarkedString::run_at(std::size_t byte) const {
  if (runs_.empty() || byte >= size()) return {size(), kTemplateOrigin};
  return runs_[find_run(byte)];
}

void MarkedMapper::append(std::string_view text, std::size_t at) {
  if (at < run_begin_ || at >= run_end_) {
    const auto run = source_.run_at(at);
    run_begin_ = at;
    run_end_ = run.end;
    run_origin_ = run.origin;
  }
  out_.append(text, run_origin_);
}

}  // namespace triptych::jinja
