// Prompt lookup: where the last tokens of a sequence stood before in it, and what followed there (Saxena
// 2023, prompt lookup decoding; "ngram" in vLLM). An answer that repeats its prompt is drafted this way
// without a model.
//
// The index grows by one entry a token. A lookup looks at a bounded number of places, whatever the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace triptych {

class NgramIndex {
 public:
  /// An id that equals nothing, for places whose id says not what stands there: rows of pictures.
  static constexpr std::int32_t kNoToken = -1;
  /// Earlier places that a lookup compares, the latest first.
  static constexpr int kMaxPlaces = 64;

  /// Looks for the last n tokens, min_n <= n <= max_n; 1 <= min_n.
  NgramIndex(int min_n, int max_n);

  void reserve(std::size_t n_tokens);
  /// The sequence goes on. Negative ids are taken as kNoToken.
  void append(std::int32_t id);
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(tokens_.size()); }

  struct Match {
    int n = 0;                   // tokens that are equal, max_n at most; 0: none
    std::int64_t following = 0;  // index of the token behind the earlier place
  };
  /// The longest match of the last tokens, of those equally long the latest.
  Match find() const;
  /// Tokens that followed `match`, up to `n_tokens`, to the end of `out`. Where it reaches the end of the
  /// sequence, the stretch between both places repeats. Ends before kNoToken.
  void continuation(const Match& match, int n_tokens, std::vector<std::int32_t>& out) const;

 private:
  void note(std::int64_t last);
  void grow();
  std::size_t bucket_of(std::int64_t last) const;
  bool holds_ngram(std::int64_t last) const;

  int min_n_, max_n_;
  std::vector<std::int32_t> tokens_;
  // Chains of places (of the last token of min_n) by hash: the latest of a bucket, and the one before each.
  std::vector<std::int32_t> latest_;    // by bucket; -1: none
  std::vector<std::int32_t> previous_;  // by place; -1: none
};

}  // namespace triptych
