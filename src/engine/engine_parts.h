// What an engine keeps of a sequence, for the files that implement Engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/answer_text.h"
#include "engine/engine.h"
#include "engine/stop_strings.h"

namespace triptych {

inline constexpr int kPageTokens = 64;
inline std::int64_t pages_for(std::int64_t n_tokens) { return (n_tokens + kPageTokens - 1) / kPageTokens; }

/// Free pages of the key/value cache.
class Engine::Pages {
 public:
  Pages(int n, KvCache& cache) : cache_(cache) {
    for (int i = n; i-- > 0;) free_.push_back(i);
  }
  std::size_t n_free() const noexcept { return free_.size(); }
  /// n of the free pages, the one given back last first.
  void take(std::size_t n, std::vector<std::int32_t>& to) {
    const auto first = free_.end() - static_cast<std::ptrdiff_t>(n);
    to.insert(to.end(), first, free_.end());
    free_.erase(first, free_.end());
  }
  void give_back(std::span<const std::int32_t> pages) {
    cache_.release_pages(pages);
    free_.insert(free_.end(), pages.begin(), pages.end());
  }

 private:
  std::vector<std::int32_t> free_;
  KvCache& cache_;
};

struct Engine::Sequence {
  RequestId id = 0;
  PreparedRequest request;
  TokenCallback on_token;
  std::unique_ptr<Sampler> sampler;
  std::unique_ptr<AnswerText> text;
  std::vector<MediaPlan> plans;
  StopStrings stops;
  bool cancelled = false;

  std::int64_t n_prompt = 0;
  std::int64_t max_tokens = 0;  // of the answer
  std::int64_t n_done = 0;      // tokens in the cache
  std::int32_t next_id = 0;     // to be fed next, once the prompt is in
  std::int32_t next_position = 0;
  std::vector<std::int32_t> pages;
  Tensor media_rows;                          // [n image tokens, D]
  std::vector<std::int64_t> media_first_row;  // per item
  bool media_encoded = false;
  GenerationResult result;

  bool prefilled() const noexcept { return n_done >= n_prompt; }
  /// Some of the item's rows are still to be fed.
  bool needs_media(int index) const noexcept {
    for (const MediaRun& run : request.layout.runs)
      if (run.media_index == index && run.first_prompt_row + run.n_rows > n_done) return true;
    return false;
  }
};

}  // namespace triptych
