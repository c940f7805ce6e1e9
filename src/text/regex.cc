// PCRE2 behind Regex: UTF and UCP on, JIT where the machine has one, limits so that no pattern and no text
// hang.
#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr std::size_t kMaxPatternBytes = 64 * 1024;
constexpr std::size_t kJitStackStart = 32 * 1024;
constexpr std::size_t kJitStackMost = 4 * 1024 * 1024;
constexpr std::uint32_t kHeapLimitKib = 64 * 1024;

// What a search needs besides the code, once per thread.
struct Workspace {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr);

  Workspace() {
    if (data == nullptr || context == nullptr)
      fail(ErrorCode::kOutOfMemory, "no memory for regular expressions");
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_heap_limit(context, kHeapLimitKib);
  }
  ~Workspace() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    if (stack != nullptr) pcre2_jit_stack_free(stack);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
};

Workspace& workspace() {
  thread_local Workspace value;
  return value;
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 160> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool jit = false;

  Code() = default;
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
};

Regex::Regex(std::string where, std::string literal, std::unique_ptr<Code> code)
    : where_(std::move(where)), literal_(std::move(literal)), code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex Regex::literal(std::string_view text, std::string_view where) {
  return Regex(std::string(where), std::string(text), nullptr);
}

Regex Regex::oniguruma(std::string_view pattern, std::string_view where) {
  if (pattern.size() > kMaxPatternBytes)
    fail(ErrorCode::kUnsupported, "{}: a pattern of {} bytes (at most {})", where, pattern.size(),
         kMaxPatternBytes);
  const std::string translated = translate_oniguruma(pattern, where);
  auto code = std::make_unique<Code>();
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                             &offset, context.get());
  if (code->code == nullptr)
    fail(ErrorCode::kInvalidFile, "{}: not a valid pattern: {} (near byte {} of {})", where,
         message_of(error), offset, translated);
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::string(where), {}, std::move(code));
}

bool Regex::search(std::string_view text, std::size_t from, std::size_t& begin, std::size_t& end) const {
  if (code_ == nullptr) {
    const std::size_t at = text.find(literal_, from);
    begin = at;
    end = at + literal_.size();
    return at != std::string_view::npos;
  }
  Workspace& w = workspace();
  // Backtracking over one long run costs a step a byte; anything far above that is a runaway pattern.
  const auto limit =
      static_cast<std::uint32_t>(std::min<std::size_t>(1'000'000 + 16 * text.size(), 400'000'000));
  pcre2_set_match_limit(w.context, limit);
  pcre2_set_depth_limit(w.context, limit);
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int rc = PCRE2_ERROR_JIT_BADOPTION;
  if (code_->jit && w.stack != nullptr)
    rc = pcre2_jit_match(code_->code, subject, text.size(), from, 0, w.data, w.context);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT || rc == PCRE2_ERROR_JIT_BADOPTION)
    rc = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w.data,
                     w.context);
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  if (rc < 0)
    fail(ErrorCode::kInvalidArgument, "{}: the pattern fails on this text: {}", where_, message_of(rc));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(w.data);
  begin = range[0];
  end = std::max(range[0], range[1]);
  return true;
}

bool Regex::Matches::next(std::size_t& begin, std::size_t& end) {
  while (from_ <= text_.size()) {
    if (!regex_->search(text_, from_, begin, end)) {
      from_ = text_.size() + 1;
      return false;
    }
    if (begin == end && end == last_end_) {
      from_ += from_ < text_.size() ? utf8::length_of(text_[from_]) : 1;
      continue;
    }
    from_ = end;
    last_end_ = end;
    return true;
  }
  return false;
}

}  // namespace triptych
