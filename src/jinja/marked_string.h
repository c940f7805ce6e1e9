// A UTF-8 string that remembers where each of its bytes came from. Marks follow the text through every
// operation of a template, so that what a user typed can be told from what the template wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace triptych::jinja {

/// Where text came from. 0 is the template itself; other numbers belong to the caller.
using Origin = std::uint32_t;
constexpr Origin kTemplateOrigin = 0;

class MarkedString {
 public:
  /// Bytes [previous run's end, end) have this origin.
  struct Run {
    std::size_t end;
    Origin origin;
  };

  MarkedString() = default;
  MarkedString(std::string text,
               Origin origin = kTemplateOrigin);  // NOLINT: a plain string is a marked string
  MarkedString(const char* text) : MarkedString(std::string(text)) {}  // NOLINT

  std::string_view view() const noexcept { return text_; }
  const std::string& str() const noexcept { return text_; }
  std::size_t size() const noexcept { return text_.size(); }
  bool empty() const noexcept { return text_.empty(); }
  /// Memory held beyond the object itself.
  std::size_t bytes() const noexcept { return text_.capacity() + runs_.capacity() * sizeof(Run); }

  void reserve(std::size_t bytes) { text_.reserve(bytes); }
  void append(std::string_view text, Origin origin = kTemplateOrigin);
  void append(const std::string& text) { append(std::string_view(text)); }
  void append(const char* text) { append(std::string_view(text)); }
  void append(const MarkedString& other) { append(other, 0, other.size()); }
  /// Appends bytes [begin, end) of `other` with their marks.
  void append(const MarkedString& other, std::size_t begin, std::size_t end);

  /// Bytes [begin, end) with their marks.
  MarkedString slice(std::size_t begin, std::size_t end) const;
  void truncate(std::size_t size);
  /// The end and origin of the run that holds a byte (< size()).
  Run run_at(std::size_t byte) const;

  /// Calls fn(begin, end, origin) for each maximal run in [begin, end).
  template <typename Fn>
  void for_each_run(std::size_t begin, std::size_t end, Fn&& fn) const {
    if (begin >= end) return;
    if (runs_.empty()) {
      fn(begin, end, kTemplateOrigin);
      return;
    }
    for (std::size_t i = find_run(begin); i < runs_.size() && begin < end; ++i) {
      const std::size_t stop = runs_[i].end < end ? runs_[i].end : end;
      fn(begin, stop, runs_[i].origin);
      begin = stop;
    }
  }
  template <typename Fn>
  void for_each_run(Fn&& fn) const {
    for_each_run(0, size(), std::forward<Fn>(fn));
  }

 private:
  std::size_t find_run(std::size_t byte) const;
  void mark(std::size_t end, Origin origin);

  std::string text_;
  std::vector<Run> runs_;  // empty: all of it is the template's
};

/// Builds a string from another one character by character: each piece takes the mark of the byte it stands
/// for.
class MarkedMapper {
 public:
  explicit MarkedMapper(const MarkedString& source) : source_(source) {}
  /// Appends `text` with the mark of source byte `at`.
  void append(std::string_view text, std::size_t at);
  MarkedString take() { return std::move(out_); }

 private:
  const MarkedString& source_;
  MarkedString out_;
  std::size_t run_begin_ = 0;
  std::size_t run_end_ = 0;
  Origin run_origin_ = kTemplateOrigin;
};

}  // namespace triptych::jinja
